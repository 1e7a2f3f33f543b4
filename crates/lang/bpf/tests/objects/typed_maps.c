// Maps as libbpf's macros __uint and __type expand.
typedef unsigned key_part;

struct flow {
    key_part addresses[2];
    unsigned short ports[2];
};

struct {
    int (*type)[1];
    int (*max_entries)[1024];
    const struct flow(*key);
    unsigned long long (*value);
} flows __attribute__((section(".maps"), used));

struct {
    int (*type)[11];
    int (*key_size)[8];
    unsigned (*value);
    int (*max_entries)[100];
    int (*map_flags)[1];
} routes __attribute__((section(".maps"), used));

static void *(*map_lookup_elem)(void *map, const void *key) = (void *)1;

__attribute__((section("p4"))) int program(unsigned *ctx) {
    struct {
        unsigned length, address;
    } key = {32, ctx[9]};
    unsigned *value = map_lookup_elem(&routes, &key);
    return value ? *value : 0;
}
