// The index of a stack of headers or unions is evaluated once.
#include <core.p4>
#include <v1model.p4>

header a_t { bit<8> v; }
header b_t { bit<16> v; }
header_union u_t { a_t a; b_t b; }
header r_t { bit<8> op; bit<8> after; }
struct hs_t { r_t r; a_t[3] c; u_t[3] u; }
struct ms_t { }
bit<2> bump(inout bit<2> i) { i = i + 1; return i; }
void fill(out a_t x) { x.setValid(); x.v = 0xcc; }
void touch(inout a_t x) { x.v = x.v + 1; }
parser Prs(packet_in pkt, out hs_t hs, inout ms_t ms, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hs.r);
        bit<2> i = 3;                                        // bump gives 0
        transition select(hs.r.op) { 9: union; 10: stack; default: accept; }
    }
    state union { bit<2> i = 3; pkt.extract(hs.u[bump(i)].a); hs.r.after = (bit<8>)i; transition accept; }
    state stack { bit<2> i = 3; pkt.extract(hs.c[bump(i)]); hs.r.after = (bit<8>)i; transition accept; }
}
control Vfy(inout hs_t hs, inout ms_t ms) { apply { } }
control Ing(inout hs_t hs, inout ms_t ms, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        bit<2> i = 0;
        // In each case the index is evaluated once: it is 1, and i is 1 afterwards.
        switch (hs.r.op) {
            1: { hs.c[1] = { 5 }; hs.c[2] = { 0x70 }; touch(hs.c[bump(i)]); hs.r.after = (bit<8>)i; }
            2: { fill(hs.c[bump(i)]); hs.r.after = (bit<8>)i; }
            3: { hs.u[bump(i)].a = { 0x55 }; hs.r.after = (bit<8>)i; }
            4: { hs.u[bump(i)].a.setValid(); hs.u[1].a.v = 0x66; hs.r.after = (bit<8>)i; }
            5: { fill(hs.u[bump(i)].a); hs.r.after = (bit<8>)i; }
            6: { hs.c[1] = { 1 }; hs.c[2] = { 2 }; hs.c[bump(i)] = hs.c[bump(i)]; hs.r.after = (bit<8>)i; }
            7: { hs.c[1] = { 1 }; hs.c[bump(i)].v += 0x10; hs.r.after = (bit<8>)i; }
            8: { hs.c[1] = { 1 }; hs.c[bump(i)].setInvalid(); hs.r.after = (bit<8>)i; }
            default: { }
        }
    }
}
control Egr(inout hs_t hs, inout ms_t ms, inout standard_metadata_t sm) { apply { } }
control Cks(inout hs_t hs, inout ms_t ms) { apply { } }
control Dep(packet_out pkt, in hs_t hs) { apply { pkt.emit(hs); } }
V1Switch(Prs(), Vfy(), Ing(), Egr(), Cks(), Dep()) main;
