// Arithmetic of few bits wraps around before a comparison or an index of more bits sees it.
#include <v1model.p4>

header v_t { bit<8> v; }
header h_t { bit<8> which; bit<8> v; }
struct headers_t { h_t h; v_t[4] s; }
struct meta_t { }

#include "v1.p4"

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); p.extract(hdr.s[0]); p.extract(hdr.s[1]); p.extract(hdr.s[2]);
        p.extract(hdr.s[3]); transition accept; }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 2;
        if (hdr.h.which == 1) { hdr.s[2w2 * hdr.h.v[1:0]].v = 0xff; }
        if (hdr.h.which == 2) { hdr.s[hdr.h.v[1:0] << 1].v = 0xff; }
        if (hdr.h.which == 3) { hdr.s[hdr.h.v[1:0] + 2].v = 0xff; }
        if (hdr.h.which == 4) { hdr.s[hdr.h.v[1:0] - 1].v = 0xff; }
        if (hdr.h.which == 5) { hdr.s[hdr.h.v[1:0] ^ 3].v = 0xff; }
        if (hdr.h.which == 6) { hdr.s[hdr.h.v[2:1] >> 1].v = 0xff; }
        if (hdr.h.which == 7) { if ((bit<16>)(hdr.h.v[2:0] * 4) == 4) { hdr.s[0].v = 1; } }
        if (hdr.h.which == 8) { if ((bit<16>)(hdr.h.v + 1) == 0) { hdr.s[0].v = 1; } }
    }
}
V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
