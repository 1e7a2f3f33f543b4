#include "p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c), *end = END(c);
    if (p + 14 > end)
        return 0;
    u64 o = *(u64 *)p; /* p + o may wrap around */
#ifdef FIXED
    o &= 1023;
#endif
    u8 *q = p + o;
    if (q + 1 > end)
        return 0;
    *q = 0x41;
    return 1;
}
