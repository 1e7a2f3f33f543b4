/* The header "test.h" for C files that were written for p4c's eBPF and uBPF back ends: type names, macros and
 * byte-order functions, in addition to our own header. p4c compiles such files into its own output, so
 * their functions are `static` or `inline`. Here the file becomes a separate object, whose functions must
 * be visible to the linker. They take headers by value; clang's eBPF target passes a header of more than
 * 16 bytes as a pointer, which is our calling convention. */
#ifndef P4SHIELD_P4C_H
#define P4SHIELD_P4C_H

#define P4SHIELD_NO_PROTOTYPES
#include "p4shield_program.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#define bpf_ntohl(x) __builtin_bswap32(x)
#define htons(x) __builtin_bswap16(x)
#define ntohs(x) __builtin_bswap16(x)
#define htonl(x) __builtin_bswap32(x)
#define ntohl(x) __builtin_bswap32(x)
#define __constant_htons(x) __builtin_bswap16(x)
#define __constant_ntohs(x) __builtin_bswap16(x)

#define BPF_MAP_TYPE_HASH P4_HASH
#define BPF_MAP_TYPE_ARRAY P4_ARRAY
#define REGISTER_START()
#define REGISTER_TABLE(name, type, key, value, entries) P4_MAP(name, type, key, value, entries);
#define REGISTER_END()
#define BPF_MAP_LOOKUP_ELEM(table, key) p4_map_lookup(&table, key)
#define BPF_MAP_UPDATE_ELEM(table, key, value, flags) p4_map_update(&table, key, value, flags)
#define BPF_MAP_DELETE_ELEM(table, key) p4_map_delete(&table, key)

#define static
#define inline

#endif
