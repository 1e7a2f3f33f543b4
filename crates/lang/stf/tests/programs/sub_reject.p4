// Arguments of a sub-parser and of a function are copied back when the parser rejects.
#include <v1model.p4>

header h_t { bit<8> which; bit<24> rest; }
header g_t { bit<16> v; }
struct headers_t { h_t h; g_t g; }
struct meta_t { bit<8> seen; }

#include "v1.p4"

parser Deep(packet_in b, out g_t g, inout bit<8> seen) {
    state start { seen = seen + 1; b.extract(g); transition select(g.v) { 0xffff: reject; default: accept; } }
}
parser SP(packet_in b, out headers_t h, inout bit<8> seen) {
    Deep() deep;
    state start {
        b.extract(h.h);
        seen = h.h.which;
        transition select(h.h.which) {
            1: reject;
            2: more;
            3: check;
            4: next;
            5 .. 6: accept;
        }
    }
    state more { b.extract(h.g); transition accept; }
    state check { verify(h.h.rest == 0, error.HeaderTooShort); transition accept; }
    state next { deep.apply(b, h.g, seen); transition accept; }
}
parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    SP() sub;
    state start { sub.apply(p, hdr, meta.seen); transition accept; }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 2;
        if (hdr.h.isValid()) { hdr.h.rest[7:0] = meta.seen; }
        if (std.parser_error == error.NoError) { hdr.h.rest[15:8] = 0; }
        if (std.parser_error == error.PacketTooShort) { hdr.h.rest[15:8] = 1; }
        if (std.parser_error == error.HeaderTooShort) { hdr.h.rest[15:8] = 2; }
        if (std.parser_error == error.NoMatch) { hdr.h.rest[15:8] = 3; }
        if (hdr.g.isValid()) { hdr.g.v = hdr.g.v ^ 0xf; }
    }
}
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.h); p.emit(hdr.g); } }
V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), D()) main;
