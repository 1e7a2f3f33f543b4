/* Declarations for a tenant's own extern functions in C. `p4shield compile --c-header` writes this text
 * and the declarations of one program.
 *
 *   clang -target bpf -O2 -ffreestanding -c functions.c -o functions.o
 */
#ifndef P4SHIELD_EXTERN_H
#define P4SHIELD_EXTERN_H

#include <stdint.h>

/* Defines a map for the functions, zero or empty at load:
 *   P4_MAP(seen, P4_HASH, struct flow, uint32_t, 1024); */
struct p4_map {
    uint32_t type, key_size, value_size, max_entries, flags;
};
#define P4_HASH 1
#define P4_ARRAY 2 /* its keys are uint32_t */
#define P4_MAP(name, type, key, value, entries) \
    struct p4_map name __attribute__((section("maps"), used)) = {type, sizeof(key), sizeof(value), entries, 0}

/* The engine's helpers, by number. Initialise keys and values completely, padding included. */
#define P4_HELPER static __attribute__((unused))
/* Returns a pointer to the value, which may be modified in place, or null. */
P4_HELPER void *(*const p4_map_lookup)(const void *map, const void *key) = (void *)1;
/* Returns 0 or a negative errno. `flags`: 0 for any entry, 1 for a new one, 2 for an existing one. */
P4_HELPER long (*const p4_map_update)(const void *map, const void *key, const void *value,
                                      uint64_t flags) = (void *)2;
/* Returns 0 or a negative errno. */
P4_HELPER long (*const p4_map_delete)(const void *map, const void *key) = (void *)3;
/* Returns the time of the P4 VM's monotonic clock in nanoseconds. */
P4_HELPER uint64_t (*const p4_time_ns)(void) = (void *)5;
/* Returns a pseudo-random number; not for secrets. */
P4_HELPER uint32_t (*const p4_random)(void) = (void *)7;

#endif
