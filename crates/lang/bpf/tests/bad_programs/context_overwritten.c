#include "p4.h"
PROGRAM int p4_main(struct ctx *c)
{
#ifdef FIXED
    c->output_port = 0x41414141;
#else
    *(volatile u64 *)&c->data = 0x41414141;
#endif
    u8 *p = DATA(c);
    if (p + 1 > END(c))
        return 0;
    return *p;
}
