#include "p4.h"
MAP(seen, ARRAY, 4, 8, 1);
PROGRAM int p4_main(struct ctx *c)
{
    u32 key = 0;
    u64 *value = lookup(&seen, &key);
    if (!value)
        return 0;
#ifdef FIXED
    *value = c->data_end - c->data;
#else
    *value = c->data; /* the address of the packet becomes readable through the map */
#endif
    return 1;
}
