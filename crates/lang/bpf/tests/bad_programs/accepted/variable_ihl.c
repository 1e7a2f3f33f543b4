#include "../p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c), *end = END(c);
    if (p + 34 > end || p[12] != 8 || p[13] != 0)
        return 0;
    u64 len = (p[14] & 15) * 4;
    if (len < 20)
        return 0;
    u8 *tcp = p + 14 + len;
    if (tcp + 20 > end)
        return 0;
    return p[23] != 6 || (tcp[13] & 0x12) != 2;
}
