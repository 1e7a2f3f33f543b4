// Checksums verified and updated, with and without the payload.
#include <v1model.p4>

header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header udp_t { bit<16> src; bit<16> dst; bit<16> len; bit<16> checksum; }
header sums_t { bit<7> pad; bit<1> wrong; }
struct headers_t { sums_t sums; ipv4_t ip; udp_t udp; }
struct meta_t { }

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.sums); p.extract(hdr.ip); p.extract(hdr.udp); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.ip.ihl == 5, { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.len, hdr.ip.id,
            hdr.ip.flags, hdr.ip.offset, hdr.ip.ttl, hdr.ip.protocol, hdr.ip.src, hdr.ip.dst },
            hdr.ip.checksum, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.sums.wrong = std.checksum_error;
        hdr.ip.ttl = hdr.ip.ttl - 1;
        std.egress_spec = 3;
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }
control U(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(true, { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.len, hdr.ip.id, hdr.ip.flags,
            hdr.ip.offset, hdr.ip.ttl, hdr.ip.protocol, hdr.ip.src, hdr.ip.dst },
            hdr.ip.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(true, { hdr.ip.src, hdr.ip.dst, 8w0, hdr.ip.protocol, hdr.udp.len,
            hdr.udp.src, hdr.udp.dst, hdr.udp.len }, hdr.udp.checksum, HashAlgorithm.csum16);
    }
}
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }

V1Switch(P(), V(), I(), E(), U(), D()) main;
