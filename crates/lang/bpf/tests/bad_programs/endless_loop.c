#include "p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    volatile u32 port = c->input_port;
    u32 n = 0;
#ifdef FIXED
    for (u32 i = 0; i < 64; i++) {
        asm volatile("" : "+r"(i)); /* or else clang counts down to 0, which the verifier cannot follow */
        if (port)
            break;
        n++;
    }
#else
    while (!port)
        n++;
#endif
    return n < 10;
}
