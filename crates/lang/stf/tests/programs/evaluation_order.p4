// Expressions are evaluated from left to right as they appear in the source.
#include <core.p4>
#include <v1model.p4>

header p_t {
    bit<8> a; bit<8> b; bit<8> c; bit<8> d; bit<8> e; bit<8> f;
    bit<8> g; bit<8> h; bit<8> i; bit<8> j; bit<8> k; bit<8> l;
}
struct hs_t { p_t p; }
struct ms_t { }
struct pair_t { bit<4> x; bit<4> y; }
bit<4> next(inout bit<4> n) { n = n + 1; return n; }
bit<8> keep(inout bit<8> x, in bit<8> z) { return 4; }
bit<8> set3(inout bit<8> z) { z = 3; return 1; }
bit<8> join(in bit<4> hi, in bit<4> lo) { return hi ++ lo; }
bit<8> dflt(in bit<4> x, in bit<4> y = 9) { return x ++ y; }
bool hit(inout bit<4> n, in bool r) { n = n + 1; return r; }
parser Prs(packet_in pkt, out hs_t hs, inout ms_t ms, inout standard_metadata_t sm) {
    state start { pkt.extract(hs.p); transition accept; }
}
control Vfy(inout hs_t hs, inout ms_t ms) { apply { } }
control Ing(inout hs_t hs, inout ms_t ms, inout standard_metadata_t sm) {
    action seen(bit<8> v) { hs.p.i = v; }
    bit<4> t = 0;
    table keyed {
        key = { next(t) : exact @name("one"); next(t) : exact @name("two"); }
        actions = { seen; }
        default_action = seen(0xee);
        const entries = { (1, 2) : seen(0x12); (2, 1) : seen(0x21); }
    }
    apply {
        sm.egress_spec = 1;
        // operand read before the call that changes it
        bit<8> v = 3;
        hs.p.a = v + set3(v) + v;                         // 3 + 1 + 3
        v = 5; hs.p.b = v + set3(v) + v;                  // 5 + 1 + 3
        // an inout argument is copied in before a later argument changes the variable, and copied out last
        v = 9; bit<8> r = keep(v, set3(v)); hs.p.c = v;   // 9: keep's copy is written back
        bit<4> n = 0;
        hs.p.d = join(lo = next(n), hi = next(n));        // evaluated as written: lo = 1, hi = 2
        pair_t q = { y = next(n), x = next(n) };          // y = 3, x = 4
        hs.p.e = q.x ++ q.y;
        hs.p.f = dflt(y = next(n), x = 1);                // 0x15
        hs.p.g = dflt(x = next(n));                       // 0x69
        n = 0;
        bool s = hit(n, false) && hit(n, true) || hit(n, true) || hit(n, true);   // first, third: 2 calls
        hs.p.h = (s ? 8w0x10 : 8w0) | (bit<8>)n;
        keyed.apply();                                    // the keys are evaluated in order
        n = 0;
        bit<8> w = 0xff; w[next(n)+:2] = 0; hs.p.j = w;   // bits 1 and 2
        w = 0; w[7:4] = next(n); w[3:0] = next(n) & next(n); hs.p.k = w;   // 2, 3 & 4 = 0
        n = 7;
        switch (next(n)) { 8: { hs.p.l = (bit<8>)n; } default: { hs.p.l = 0xdd; } }
        if (r != 4) { hs.p.a = 0xff; }
    }
}
control Egr(inout hs_t hs, inout ms_t ms, inout standard_metadata_t sm) { apply { } }
control Cks(inout hs_t hs, inout ms_t ms) { apply { } }
control Dep(packet_out pkt, in hs_t hs) { apply { pkt.emit(hs.p); } }
V1Switch(Prs(), Vfy(), Ing(), Egr(), Cks(), Dep()) main;
