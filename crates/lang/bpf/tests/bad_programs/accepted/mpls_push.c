#include "../p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
    if (p + 34 > END(c) || *(u16 *)(p + 12) != 0x0008)
        return 0;
    u64 macs = *(u64 *)p;
    u32 rest = *(u32 *)(p + 8);
    if (adjust_head(c, -4))
        return 0;
    p = DATA(c);
    if (p + 18 > END(c))
        return 0;
    *(u64 *)p = macs;
    *(u32 *)(p + 8) = rest;
    *(u16 *)(p + 12) = 0x4788;
    *(u32 *)(p + 14) = 0x40010600;
    return 1;
}
