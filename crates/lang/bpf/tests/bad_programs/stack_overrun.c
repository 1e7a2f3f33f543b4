#include "p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    volatile u8 a[8] = { 0 };
    u32 i = c->input_port;
#ifdef FIXED
    if (i >= 8)
        return 0;
#endif
    a[i] = 1;
    return a[0];
}
