#include "../p4.h"
__attribute__((noinline)) static int sum(const u8 *b)
{
    int s = 0;
    for (u32 i = 0; i < 16; i++)
        s += b[i];
    return s;
}
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c), b[16];
    if (p + 16 > END(c))
        return 0;
    __builtin_memcpy(b, p, 16);
    return sum(b) & 1;
}
