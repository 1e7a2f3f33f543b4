#include "p4.h"
#ifdef FIXED
static u64 (*const helper)(void) = (void *)5;
#else
static u64 (*const helper)(void) = (void *)6; /* bpf_trace_printk: not ours */
#endif
PROGRAM int p4_main(struct ctx *c)
{
    return helper() & 1;
}
