// Calls a tenant's own C function: `flow_score` in flow_score.c decides which flows are shed first.
//
//   clang -target bpf -O2 -c flow_score.c -o flow_score.o
//   p4shield compile flow_score.p4 -o main.o
//
// The P4 VM links both objects by name when it loads the program. A tenant's own extern function takes up to five
// integers, headers or structs, and returns an integer of at most 64 bits or nothing. The calling convention is in
// docs/how-to/c-externs.md.

#include <ubpf_model.p4>
#include <p4shield.p4>

// Defined in flow_score.c.
extern bit<8> flow_score(in bit<32> src, in bit<32> dst, in bit<16> length);

const bit<16> TYPE_IPV4 = 0x0800;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<8>  service;
    bit<16> total_length;
    bit<16> id;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t {
}

parser score_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control score(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    apply {
        if (hdr.ipv4.isValid()) {
            // An application of the tenant sets in slot 0 how much is shed: from 0, nothing, to 255, nearly everything.
            bit<64> limit = get_app_value(0);
            bit<8> s = flow_score(hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.total_length);
            if (vm_info_known(128) && (bit<64>)s < limit) {
                mark_to_drop();
            }
        }
    }
}

control score_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

ubpf(score_parser(), score(), score_deparser()) main;
