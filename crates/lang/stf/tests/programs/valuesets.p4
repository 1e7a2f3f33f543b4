// Parser value sets whose members match as the fields of the declared type specify.
#include <v1model.p4>

header h_t { bit<8> kind; bit<16> port; bit<12> tag; bit<4> rest; bit<8> set; }
struct headers_t { h_t h; }
struct meta_t { bit<8> set; }

#include "v1.p4"

struct masked_t { @match(ternary) bit<16> port; bit<8> kind; }
struct inner_t { @match(lpm) bit<12> tag; }
struct ranged_t { @match(range) bit<16> port; inner_t inner; @match(optional) bit<8> kind; }

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    value_set<masked_t>(4) masked;
    value_set<ranged_t>(4) ranged;
    state start {
        p.extract(hdr.h);
        transition select(hdr.h.port, hdr.h.kind) { masked: one; default: second; }
    }
    state one { meta.set = 1; transition accept; }
    state second {
        transition select(hdr.h.port, hdr.h.tag, hdr.h.kind) { ranged: two; default: accept; }
    }
    state two { meta.set = 2; transition accept; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply { hdr.h.set = meta.set; }
}

V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
