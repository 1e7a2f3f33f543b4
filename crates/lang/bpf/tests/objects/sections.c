// The sections that only our compiler writes, by hand.
#define SECTION(name) __attribute__((section(name), used))

SECTION("maps") struct {
    unsigned type, key_size, value_size, max_entries, flags;
} table = {2, 4, 8, 4};
SECTION("maps") struct {
    unsigned type, key_size, value_size, max_entries, flags;
} set = {1, 3, 8, 4};

SECTION(".p4shield.abi") unsigned abi = PROGRAM_ABI_VERSION;

// The key of `set` has three bytes, so its record is padded by one.
SECTION(".p4shield.entries") struct __attribute__((packed)) {
    struct {
        unsigned map, flags;
        unsigned char key[3];
        unsigned long long value;
        unsigned char padding[1];
    } __attribute__((packed)) first;
    struct {
        unsigned map, flags, key;
        unsigned long long value;
    } __attribute__((packed)) second;
} entries = {{20, 0, {1, 2, 3}, 5, {0}}, {0, 0, 1, 6}};

SECTION(".p4shield.lines") struct __attribute__((packed)) {
    unsigned count, records[2][4], files, length1;
    char name1[4];
    unsigned length2;
    char name2[4];
} lines = {2, {{0, 0, 10, 3}, {1, 1, 20, 5}}, 2, 4, {'a', '.', 'p', '4'}, 4, {'b', '.', 'p', '4'}};

extern int twice(int x);

SECTION("p4") int p4_main(unsigned *ctx) { return twice(ctx[4]) + 1; }
