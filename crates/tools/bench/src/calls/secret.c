/* The secret part of the program of TEE Time at P4. */
#include "p4shield_program.h"

#define KEY 0x5a5a5a5aU

uint32_t secret(uint32_t value)
{
    return ((value ^ KEY) + 1) ^ KEY;
}
