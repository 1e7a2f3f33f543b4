#include "../p4.h"
struct flow { u32 source, destination; u16 port; u8 protocol, pad; };
MAP(flows, HASH, sizeof(struct flow), 16, 1024);
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
    if (p + 38 > END(c))
        return 0;
    struct flow f = { *(u32 *)(p + 26), *(u32 *)(p + 30), *(u16 *)(p + 36), p[23], 0 };
    u64 *n = lookup(&flows, &f);
    if (n) {
        __sync_fetch_and_add(&n[0], 1);
        __sync_fetch_and_add(&n[1], c->packet_length);
    } else {
        u64 first[2] = { 1, c->packet_length };
        update(&flows, &f, first, 0);
    }
    return 1;
}
