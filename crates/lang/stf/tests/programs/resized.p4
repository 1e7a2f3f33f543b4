// A packet whose length the deparser changes: what the program reads and truncates.
#include <ubpf_model.p4>

header in_t { bit<8> grow; bit<8> cut; bit<48> rest; }
header out_t { bit<8> length; bit<8> again; }
struct headers_t { in_t i; out_t o; out_t p; }
struct meta_t {}

parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {
    state start {
        p.extract(hdr.i);
        transition accept;
    }
}

control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {
    apply {
        hdr.o.setValid();
        hdr.o.length = (bit<8>)std.packet_length;
        hdr.o.again = hdr.i.grow;
        if (hdr.i.grow == 1) {
            hdr.p = hdr.o;
        }
        if (hdr.i.cut != 0) {
            truncate((bit<32>)hdr.i.cut);
        }
        if (hdr.i.grow == 2) {
            hdr.i.setInvalid();
        }
    }
}

control dprs(packet_out p, in headers_t hdr) {
    apply {
        p.emit(hdr);
    }
}

ubpf(prs(), pipe(), dprs()) main;
