/* What a tenant's C needs to know; crates/base/abi is what decides. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct ctx {
    u64 data, data_end;
    u32 input_port, packet_length, output_action, output_port, direction, vm;
    u64 timestamp_ns;
};
struct map { u32 type, key_size, value_size, max_entries, flags; };

#define HASH 1
#define ARRAY 2
#define LPM 11
#define MAP(name, ...) __attribute__((section("maps"), used)) struct map name = { __VA_ARGS__, 0 }
#define PROGRAM __attribute__((section("p4"), used))

static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const adjust_head)(struct ctx *, int delta) = (void *)44;
static long (*const adjust_tail)(struct ctx *, int delta) = (void *)65;
static u64 (*const read_vm_info)(struct ctx *, u32 field) = (void *)1000;
static u64 (*const vm_info_status)(struct ctx *) = (void *)1001;

#define DATA(c) ((u8 *)(c)->data)
#define END(c) ((u8 *)(c)->data_end)
