// Copies of invalid headers, stacks and unions are invalid (P4_16 8.17, 8.18, 8.20).
#include <v1model.p4>

header o_t { bit<8> op; bit<8> valid; }
header a_t { bit<8> v; }
header b_t { bit<16> v; }
header_union u_t { a_t a; b_t b; }
struct headers_t { o_t o; a_t h; a_t[3] s; a_t[3] t; u_t u; u_t w; u_t[2] us; }
struct meta_t { }

#include "v1.p4"

void nothing(out a_t x) { }
void keep(inout a_t x) { }

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        p.extract(hdr.o);
        transition select(hdr.o.op) { 10: copied; default: accept; }
    }
    // The copy of a stack continues at the same element.
    state copied {
        p.extract(hdr.s.next);
        hdr.t = hdr.s;
        p.extract(hdr.t.next);
        hdr.s[0].setInvalid();
        transition accept;
    }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    a_t none;
    bit<1> i = hdr.o.valid[0:0];
    apply {
        std.egress_spec = 1;
        none.setInvalid();
        switch (hdr.o.op) {
            // An invalid header in one member makes the union invalid.
            1: { hdr.u.b = { 0xbbbb }; hdr.u.a = none; }
            2: { hdr.u.b = { 0xbbbb }; hdr.u.a = (a_t) {#}; }
            3: { hdr.u.b = { 0xbbbb }; nothing(hdr.u.a); }
            4: { hdr.u.b = { 0xbbbb }; keep(hdr.u.a); }
            5: { hdr.us[0].b = { 0xb0b0 }; hdr.us[1].b = { 0xb1b1 }; hdr.us[i].a = none; }
            // The whole union is copied.
            6: { hdr.u.b = { 0xbbbb }; hdr.u = hdr.w; }
            7: { hdr.u.b = { 0xbbbb }; hdr.w.a = { 0xaa }; hdr.u = hdr.w; hdr.w.a.setInvalid(); }
            8: { hdr.h = { 0x11 }; hdr.h = none; }
            9: {
                hdr.t[0] = { 0x10 }; hdr.t[1] = { 0x11 }; hdr.s[1] = { 0x55 };
                hdr.t = hdr.s;
                hdr.s[1] = none;
            }
            default: { }
        }
        hdr.o.valid = 3w0 ++ (bit<1>)hdr.h.isValid() ++ (bit<1>)hdr.u.a.isValid() ++ (bit<1>)hdr.u.b.isValid()
            ++ (bit<1>)hdr.u.isValid() ++ (bit<1>)hdr.t[1].isValid();
    }
}
V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
