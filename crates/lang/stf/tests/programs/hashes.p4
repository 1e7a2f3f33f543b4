// Every hash algorithm, also over fields of partial bytes.
#include <v1model.p4>

header h_t { bit<72> text; bit<32> crc32; bit<16> crc16; bit<16> csum; bit<16> xor; bit<32> id;
    bit<16> bounded; bit<16> base; bit<16> random; }
struct headers_t { h_t h; }
struct meta_t { }

#include "v1.p4"

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        bit<64> all = 0x100000000;
        hash(hdr.h.crc32, HashAlgorithm.crc32, 32w0, { hdr.h.text }, all);
        hash(hdr.h.crc16, HashAlgorithm.crc16, 16w0, { hdr.h.text[71:40], hdr.h.text[39:0] }, 32w0x10000);
        hash(hdr.h.csum, HashAlgorithm.csum16, 16w0, { hdr.h.text }, 32w0x10000);
        hash(hdr.h.xor, HashAlgorithm.xor16, 16w0, { hdr.h.text }, 32w0x10000);
        hash(hdr.h.id, HashAlgorithm.identity, 32w0, { hdr.h.text[3:0], hdr.h.text[7:0] }, all);
        hash(hdr.h.bounded, HashAlgorithm.crc16, 16w100, { hdr.h.text }, 16w10);
        hash(hdr.h.base, HashAlgorithm.crc16, 16w100, { hdr.h.text }, 16w0);
        random(hdr.h.random, 16w5, 16w5);
    }
}

V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
