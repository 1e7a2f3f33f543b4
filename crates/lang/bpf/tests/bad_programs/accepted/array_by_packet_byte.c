#include "../p4.h"
MAP(verdicts, ARRAY, 4, 8, 16);
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
    if (p + 14 > END(c))
        return 0;
    u32 index = p[0];
    u8 *v = lookup(&verdicts, &index);
    if (!v)
        return 0;
    u64 n = p[1];
    if (n > 7)
        return 0;
    return v[n];
}
