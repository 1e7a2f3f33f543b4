#include "../p4.h"
struct key { u32 bits; u8 address[4]; };
MAP(routes, LPM, 8, 8, 256);
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
    if (p + 34 > END(c))
        return 0;
    struct key k = { 32, { p[30], p[31], p[32], p[33] } };
    u32 *port = lookup(&routes, &k);
    if (!port || p[22] <= 1)
        return 0;
    p[22] -= 1;
    c->output_port = *port;
    return 1;
}
