#include "p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c), *end = END(c);
    if (p + 14 > end || adjust_head(c, 14))
        return 0;
#ifdef FIXED
    p = DATA(c), end = END(c);
    if (p + 14 > end)
        return 0;
#endif
    p[0] = 1;
    return 1;
}
