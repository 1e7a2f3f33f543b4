#include "../p4.h"
PROGRAM int p4_main(struct ctx *c)
{
    u8 *p = DATA(c);
    if (p + 54 > END(c))
        return 0;
    if (*(u16 *)(p + 12) != 8 || p[14] != 0x45 || p[23] != 6)
        return 1;
    if ((p[47] & 0x12) != 2)
        return 1;
    if (vm_info_status(c))
        return 0;
    return read_vm_info(c, 1) <= read_vm_info(c, 2);
}
