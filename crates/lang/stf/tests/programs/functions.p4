// The tenant's C functions: numbers, headers, structs of headers, wide fields, a map that C defines.
#include <v1model.p4>

header h_t { bit<4> a; bit<12> b; int<8> s; bit<128> w; bit<48> who; bit<80> wide; bit<32> n;
    bit<8> ordered; }
header extra_t { bit<8> x; }
struct headers_t { h_t h; extra_t extra; }
struct meta_t { }

#include "v1.p4"

extern bool ordered(in h_t h);
extern void turn(inout headers_t hdr, out bit<80> wide, in int<5> by);
extern bit<32> seen(in bit<48> who);

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply {
        hdr.h.ordered = ordered(hdr.h) ? 8w1 : 0;
        bit<80> wide;
        turn(hdr, wide, (int<5>) hdr.h.s);
        hdr.h.wide = wide;
        hdr.h.n = seen(hdr.h.who);
    }
}

V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
