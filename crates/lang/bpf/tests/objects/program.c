// A tenant's program in C: maps, a static function, a global one, and an extern of another object.
struct bpf_map_def {
    unsigned type, key_size, value_size, max_entries, flags;
};
struct context {
    unsigned long long data, data_end;
    unsigned input_port, packet_length;
};

__attribute__((section("maps"), used)) struct bpf_map_def counts = {2, 4, 8, 16, 0};
__attribute__((section("maps"), used)) struct bpf_map_def shared = {1, 4, 8, 16, 0};

static void *(*map_lookup_elem)(void *map, const void *key) = (void *)1;

extern unsigned char add_one(unsigned char x);

static __attribute__((noinline)) unsigned masked(unsigned a) { return a & 15; }

__attribute__((noinline)) unsigned key_of(unsigned a) { return masked(a); }

__attribute__((section("p4"))) int program(struct context *ctx) {
    unsigned char *p = (unsigned char *)ctx->data;
    if (p + 14 > (unsigned char *)ctx->data_end) {
        return 0;
    }
    unsigned key = key_of(p[0]);
    unsigned long long *count = map_lookup_elem(&counts, &key);
    if (count) {
        __sync_fetch_and_add(count, 1);
    }
    p[1] = add_one(p[0]);
    return p[0] == 7;
}
