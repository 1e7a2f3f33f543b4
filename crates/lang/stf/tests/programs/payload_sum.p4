// The data of a checksum with payload and the payload are one string of bytes (RFC 1071): an odd number of data
// bytes moves the payload by a byte.
#include <v1model.p4>

header h_t { bit<8> which; bit<8> a; bit<16> sum; }
header o_t { varbit<64> options; }
struct headers_t { h_t h; o_t o; }
struct meta_t { }

#include "v1.p4"

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        p.extract(hdr.h);
        transition select(hdr.h.which) { 0x40 &&& 0xf0: options; default: accept; }
    }
    state options { p.extract(hdr.o, (bit<32>)hdr.h.which[3:0] * 8); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum_with_payload(hdr.h.which == 3, { hdr.h.a }, hdr.h.sum, HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.h.which == 4, { hdr.h.which, hdr.h.a }, hdr.h.sum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply { std.egress_spec = 2; if (std.checksum_error == 1) { std.egress_spec = 3; } }
}
control U(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum_with_payload(hdr.h.which == 0, { hdr.h.a }, hdr.h.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.h.which == 1, { hdr.h.a, hdr.h.which, hdr.h.a }, hdr.h.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.h.which == 2, { hdr.h.a, hdr.h.which }, hdr.h.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.o.isValid(), { hdr.h.a, hdr.o.options }, hdr.h.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.h); p.emit(hdr.o); } }
V1Switch(P(), V(), I(), NoEgress(), U(), D()) main;
