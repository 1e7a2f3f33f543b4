/* P4rt-OVS's verifier takes the value of every load for 0, and accepts this. */
#include "p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
    if (p + 64 > END(c))
        return 0;
    u64 o = *(u64 *)p;
#ifdef FIXED
    o &= 63;
#endif
    p[o] = 0x41;
    return 1;
}
