// An l-value is evaluated once, before the value that is assigned to it.
#include <core.p4>
#include <v1model.p4>

header cell_t { bit<8> v; }
struct hs_t { cell_t[4] c; }
struct ms_t { }

bit<2> bump(inout bit<2> i) { i = i + 1; return i; }
void addTo(inout bit<8> cell, in bit<8> n) { cell = cell + n; }
void swap2(inout bit<8> a, inout bit<8> b) { bit<8> t = a; a = b; b = t; }

parser Prs(packet_in pkt, out hs_t hs, inout ms_t ms, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hs.c.next); pkt.extract(hs.c.next); pkt.extract(hs.c.next); pkt.extract(hs.c.next);
        transition accept;
    }
}
control Vfy(inout hs_t hs, inout ms_t ms) { apply { } }
control Ing(inout hs_t hs, inout ms_t ms, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        bit<2> i = hs.c[0].v[1:0];
        hs.c[bump(i)].v += 4;                 // one step: index i + 1
        addTo(hs.c[bump(i)].v, 0x10);         // the element of one step more, read and written
        hs.c[i].v = (bit<8>)bump(i);          // the left side's index is evaluated first
        bit<2> k = 0;
        swap2(hs.c[k].v, hs.c[bump(k)].v);    // elements 0 and 1
    }
}
control Egr(inout hs_t hs, inout ms_t ms, inout standard_metadata_t sm) { apply { } }
control Cks(inout hs_t hs, inout ms_t ms) { apply { } }
control Dep(packet_out pkt, in hs_t hs) { apply { pkt.emit(hs.c); } }
V1Switch(Prs(), Vfy(), Ing(), Egr(), Cks(), Dep()) main;
