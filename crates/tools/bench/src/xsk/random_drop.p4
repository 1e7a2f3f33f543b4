// Drops one packet in 256, in no step with any flow: by the high bits of a linear congruential generator (Knuth's
// constants), whose state a register holds.

#include <ubpf_model.p4>

struct headers_t {
}

struct metadata_t {
}

parser drop_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        transition accept;
    }
}

control drop(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    Register<bit<32>, bit<32>>(1) random;

    apply {
        bit<32> number = random.read(0) * 1664525 + 1013904223;
        random.write(0, number);
        if (number[31:24] == 0) {
            mark_to_drop();
        }
    }
}

control drop_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

ubpf(drop_parser(), drop(), drop_deparser()) main;
