#include "p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
#ifdef FIXED
    if (p + 24 > END(c))
        return 0;
#endif
    return p[23] == 6;
}
