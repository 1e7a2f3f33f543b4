// Numbers without a width (`int`): parameters, arguments, lists and tuples of them are known at compile time.
#include <v1model.p4>

header h_t { bit<8> which; bit<32> a; bit<8> b; }
struct headers_t { h_t h; }
struct meta_t { bit<32> parsed; }

#include "v1.p4"

parser Sub(packet_in p, out headers_t hdr, out bit<32> v)(int n, int m) {
    state start {
        p.extract(hdr.h);
        v = n * m;
        transition select(hdr.h.b) {
            n: reject;
            default: accept;
        }
    }
}
parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Sub(200, 300) sub;
    state start { sub.apply(p, hdr, meta.parsed); transition accept; }
}
bit<32> plus(in bit<32> x, int n) { return x + n; }
bit<32> outer(in bit<32> x, int n) { return plus(x, n + 1); }
control Add(inout bit<32> v)(int n) { apply { v = v + n; } }
control Inner(inout bit<32> v)(int n, bit<8> w) {
    register<bit<32>>(n) cells;
    action set(bit<32> x, bit<8> y) { v = x + (bit<32>)y; }
    table t { key = { v : exact; } actions = { set; NoAction; }
        const entries = { 7 : set(n, w); 9 : set(n + 1, w + 1); } const default_action = NoAction; }
    table d { key = { } actions = { set; } default_action = set(n, w); }
    apply {
        if (v < 10) { t.apply(); } else if (v == 10) { d.apply(); } else if (v == 11) { v = v << n; }
        else if (n > 3 && v == 12) { v = n == 5 ? 32w1 : 2; }
        else if (v == 13) { cells.write(n - 1, 77); cells.read(v, n - 1); }
        else if (v == 14) { cells.write(n, 77); cells.read(v, n); }
    }
}
control Nested(inout bit<32> v)(int n) {
    Inner(n, 8w3) inner;
    Inner(n * 2 - 5, (bit<8>)n) other;
    apply { inner.apply(v); if (v == 99) { other.apply(v); } }
}
control Direct(inout bit<32> v, int n) { apply { v = v + n; v[3:0] = n; } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Add(7) add;
    Nested(5) nested;
    Direct() direct;
    action by_list() {
        bit<32> sum = 0;
        for (bit<32> x in { 1, 2, 300 }) { sum = sum + x; }
        hdr.h.a = sum;
    }
    apply {
        std.egress_spec = 2;
        if (hdr.h.which == 1) { add.apply(hdr.h.a); }
        if (hdr.h.which == 2) { nested.apply(hdr.h.a); }
        if (hdr.h.which == 3) { direct.apply(hdr.h.a, 0x25); }
        if (hdr.h.which == 4) { hdr.h.a = plus(hdr.h.a, 9); }
        if (hdr.h.which == 5) { hdr.h.a = outer(hdr.h.a, -2); }
        if (hdr.h.which == 6) { if ({ hdr.h.a, 3 } == { 32w7, 2 }) { hdr.h.b = 1; } else { hdr.h.b = 2; } }
        if (hdr.h.which == 7) { if ({ hdr.h.a, 3 } == { 32w7, 3 }) { hdr.h.b = 1; } else { hdr.h.b = 2; } }
        if (hdr.h.which == 8) { by_list(); }
        if (hdr.h.which == 9) { hdr.h.a = (bit<32>)(int)hdr.h.b; }
        if (hdr.h.which == 10) { hdr.h.a = (bit<32>)(int)(int<8>)hdr.h.b; }
        if (hdr.h.which == 11) { hdr.h.a = meta.parsed; }
    }
}
V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
