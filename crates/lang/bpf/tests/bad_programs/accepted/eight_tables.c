#include "../p4.h"
MAP(table0, HASH, 4, 8, 64);
MAP(table1, HASH, 4, 8, 64);
MAP(table2, HASH, 4, 8, 64);
MAP(table3, HASH, 4, 8, 64);
MAP(table4, HASH, 4, 8, 64);
MAP(table5, HASH, 4, 8, 64);
MAP(table6, HASH, 4, 8, 64);
MAP(table7, HASH, 4, 8, 64);
#define APPLY(i)                                                  \
    {                                                             \
        u32 key = *(u32 *)(p + 26 + (i % 4)) ^ meta;              \
        u32 *a = lookup(&table##i, &key);                         \
        if (a) {                                                  \
            if (a[0] == 1)                                        \
                meta += a[1];                                     \
            else if (a[0] == 2)                                   \
                p[15] = a[1];                                     \
            else                                                  \
                return 0;                                         \
        }                                                         \
    }
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
    u32 meta = 0;
    if (p + 34 > END(c))
        return 0;
    APPLY(0) APPLY(1) APPLY(2) APPLY(3) APPLY(4) APPLY(5) APPLY(6) APPLY(7)
    return 1;
}
