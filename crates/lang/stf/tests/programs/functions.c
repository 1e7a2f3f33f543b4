/* The functions of functions.p4. */
#include "p4shield_program.h"

P4_MAP(counts, P4_HASH, uint64_t, uint32_t, 16);

uint8_t ordered(const struct h_t *h)
{
    return h->ebpf_valid && h->w[0] < h->w[15];
}

void turn(struct headers_t *hdr, uint8_t wide[10], int8_t by)
{
    for (int i = 0; i < 10; i++)
        wide[i] = hdr->h.w[i + 6];
    hdr->h.b += by;
    hdr->h.s = by * 2;
    if (hdr->h.a == 2) {
        hdr->extra.x = 0x77;
        hdr->extra.ebpf_valid = 1;
    }
}

uint32_t seen(uint64_t who)
{
    uint32_t first = 1;
    uint32_t *n = p4_map_lookup(&counts, &who);

    if (n)
        return ++*n;
    p4_map_update(&counts, &who, &first, 0);
    return 1;
}
