// Arguments with effects in calls of externs, methods, controls and actions of tables.
#include <v1model.p4>

header o_t { bit<8> op; bit<8> after; bit<16> res; }
header c_t { bit<8> v; }
header e_t { varbit<16> d; }
struct headers_t { o_t o; c_t[4] c; e_t[2] e; }
struct meta_t { }
struct pair_t { bit<8> x; bit<8> y; }

#include "v1.p4"

bit<8> next(inout bit<8> n) { n = n + 1; return n; }

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        p.extract(hdr.o);
        p.extract(hdr.c.next); p.extract(hdr.c.next); p.extract(hdr.c.next); p.extract(hdr.c.next);
        transition select(hdr.o.op) { 10: variable; default: accept; }
    }
    state variable {
        bit<8> n = 0;
        // 8 bits into element 0; in the other order, 16 bits into element 1
        p.extract(variableFieldSizeInBits = (bit<32>)next(n) << 3,
                  variableSizeHeader = hdr.e[(bit<1>)next(n)]);
        hdr.o.after = n;
        transition accept;
    }
}
control Shift(inout bit<8> x, in bit<8> y) { apply { x = (x << 4) + y; } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    register<bit<8>>(4) r;
    Shift() shift;
    bit<8> n = 0;
    action join(in bit<8> a, in bit<8> b) { hdr.o.res = a ++ b; }
    table t { actions = { join(b = next(n), a = next(n)); } const default_action = join(); }
    apply {
        std.egress_spec = 1;
        switch (hdr.o.op) {
            // the parameter gets the value from before the other argument changes the variable
            1: { n = 2; shift.apply(n, next(n)); }
            // the other elements are evaluated too
            2: { hdr.o.res = 8w0 ++ ((pair_t) { y = next(n), x = next(n) }).y; }
            3: { tuple<bit<8>, bit<8>> w = { next(n), next(n) }; hdr.o.res = w[0] ++ w[1]; }
            4: {
                r.write(value = next(n), index = (bit<32>)next(n));
                bit<8> x;
                r.read(x, 2);
                hdr.o.res = 8w0 ++ x;
            }
            5: { r.write(1, 0x77); r.read(index = (bit<32>)next(n), result = hdr.c[(bit<2>)next(n)].v); }
            // identity of 03 00 modulo 16 is 0
            6: { hash(hdr.c[(bit<2>)next(n)].v, HashAlgorithm.identity, next(n), { next(n), 8w0 }, 8w16); }
            7: { log_msg("{}", { next(n) }); }
            8: { join(b = next(n), a = next(n)); }
            9: { t.apply(); }
            10: { n = hdr.o.after; hdr.o.res = hdr.e[0].isValid() ? 16w1 : 0; }
            default: { }
        }
        hdr.o.after = n;
    }
}
V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
