// An extraction that fails leaves the header as it was, with the error that the language prescribes.
#include <v1model.p4>

header in_t { bit<8> bits; bit<8> error_seen; bit<8> first; bit<88> rest; }
header v_t { bit<8> l; varbit<32> v; }
struct headers_t { in_t i; v_t v; }
struct meta_t {}

parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        p.extract(hdr.i);
        p.extract(hdr.v, 8);
        p.extract(hdr.v, (bit<32>)hdr.i.bits);
        transition accept;
    }
}

control verify_c(inout headers_t hdr, inout meta_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        if (std.parser_error == error.NoError) {
            hdr.i.error_seen = 1;
        }
        if (std.parser_error == error.PacketTooShort) {
            hdr.i.error_seen = 2;
        }
        if (std.parser_error == error.HeaderTooShort) {
            hdr.i.error_seen = 3;
        }
        if (std.parser_error == error.ParserInvalidArgument) {
            hdr.i.error_seen = 4;
        }
        hdr.i.first = hdr.v.l;
    }
}

control egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {}
}

control compute(inout headers_t hdr, inout meta_t meta) {
    apply {}
}

control dprs(packet_out p, in headers_t hdr) {
    apply {
        p.emit(hdr);
    }
}

V1Switch(prs(), verify_c(), ingress(), egress(), compute(), dprs()) main;
