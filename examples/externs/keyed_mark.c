/* The function of keyed_mark.p4 that knows a key: SipHash-1-3 of addresses and protocol.
 *
 *   p4shield compile keyed_mark.p4 --c-header p4shield_program.h
 *   clang -target bpf -O2 -ffreestanding -c keyed_mark.c -o keyed_mark.o
 *
 * In a compartment, only the compartment has these maps. `--function-maps keyed_mark.maps` fills the key; without it,
 * the key is zero.
 */
#include "p4shield_program.h"

struct key {
    uint64_t low, high;
};

P4_MAP(secret, P4_ARRAY, uint32_t, struct key, 1);
/* Marks so far. */
P4_MAP(marks, P4_ARRAY, uint32_t, uint64_t, 1);

#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))
#define ROUND                                                                                                          \
    do {                                                                                                               \
        a += b, b = ROTATE(b, 13) ^ a, a = ROTATE(a, 32);                                                              \
        c += d, d = ROTATE(d, 16) ^ c;                                                                                 \
        a += d, d = ROTATE(d, 21) ^ a;                                                                                 \
        c += b, b = ROTATE(b, 17) ^ c, c = ROTATE(c, 32);                                                              \
    } while (0)

uint16_t keyed_mark(uint32_t src, uint32_t dst, uint8_t protocol)
{
    uint32_t slot = 0;
    uint64_t *count = p4_map_lookup(&marks, &slot);
    struct key *key = p4_map_lookup(&secret, &slot);

    if (!count || !key)
        return 0;
    ++*count;

    uint64_t a = key->low ^ 0x736f6d6570736575, b = key->high ^ 0x646f72616e646f6d;
    uint64_t c = key->low ^ 0x6c7967656e657261, d = key->high ^ 0x7465646279746573;
    uint64_t words[2] = {(uint64_t)src << 32 | dst, (uint64_t)9 << 56 | protocol};

    d ^= words[0];
    ROUND;
    a ^= words[0];
    d ^= words[1];
    ROUND;
    a ^= words[1];
    c ^= 0xff;
    ROUND;
    ROUND;
    ROUND;
    return a ^ b ^ c ^ d;
}
