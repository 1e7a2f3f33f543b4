/* What a tenant's own extern functions in C use. `p4shield compile --c-header` writes it, with the declarations of one
 * program behind it.
 *
 *   clang -target bpf -O2 -ffreestanding -c functions.c -o functions.o
 */
#ifndef P4SHIELD_EXTERN_H
#define P4SHIELD_EXTERN_H

#include <stdint.h>

/* A map of the functions' own, zero or empty when the program is loaded:
 *   P4_MAP(seen, P4_HASH, struct flow, uint32_t, 1024); */
struct p4_map {
    uint32_t type, key_size, value_size, max_entries, flags;
};
#define P4_HASH 1
#define P4_ARRAY 2 /* its keys are uint32_t */
#define P4_MAP(name, type, key, value, entries)                                                                        \
    struct p4_map name __attribute__((section("maps"), used)) = {type, sizeof(key), sizeof(value), entries, 0}

/* The engine's helpers, by their numbers. Keys and values have to be set as a whole, padding included. */
#define P4_HELPER static __attribute__((unused))
/* The value, or null. It may be changed in place. */
P4_HELPER void *(*const p4_map_lookup)(const void *map, const void *key) = (void *)1;
/* 0, or a negative errno. `flags`: 0 for any entry, 1 for a new one, 2 for one that exists. */
P4_HELPER long (*const p4_map_update)(const void *map, const void *key, const void *value, uint64_t flags) = (void *)2;
/* 0, or a negative errno. */
P4_HELPER long (*const p4_map_delete)(const void *map, const void *key) = (void *)3;
/* Nanoseconds of the P4 VM's monotonic clock. */
P4_HELPER uint64_t (*const p4_time_ns)(void) = (void *)5;
/* A pseudo-random number; not for secrets. */
P4_HELPER uint32_t (*const p4_random)(void) = (void *)7;

#endif
