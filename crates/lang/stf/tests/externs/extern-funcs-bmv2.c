/* For p4c's extern-funcs-bmv2.p4, whose own function is C++ of the reference switch. */
#include "p4shield_program.h"

void extern_func(uint32_t *d, uint32_t s)
{
    *d = s;
}
