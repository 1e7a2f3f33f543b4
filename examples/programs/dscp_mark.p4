// Rewrites packets: sets a DSCP for classes of destinations, decrements the time to live, and updates the IPv4
// checksum incrementally (RFC 1624).
//
// Bind it to egress. The table is empty when the program is loaded; until it has entries, its default action applies.

#include <ubpf_model.p4>

const bit<16> TYPE_IPV4 = 0x0800;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<6>  dscp;
    bit<2>  ecn;
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

parser mark_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
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

control mark(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    action set_dscp(bit<6> value) {
        bit<16> old = hdr.ipv4.version ++ hdr.ipv4.header_words ++ hdr.ipv4.dscp ++ hdr.ipv4.ecn;
        hdr.ipv4.dscp = value;
        bit<16> new = hdr.ipv4.version ++ hdr.ipv4.header_words ++ hdr.ipv4.dscp ++ hdr.ipv4.ecn;
        hdr.ipv4.checksum = csum_replace2(hdr.ipv4.checksum, old, new);
    }

    table classes {
        key = {
            hdr.ipv4.dst : lpm;
        }
        actions = { set_dscp; NoAction; }
        default_action = set_dscp(0);
        size = 1024;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.ttl <= 1) {
                mark_to_drop();
                return;
            }
            bit<16> old = hdr.ipv4.ttl ++ hdr.ipv4.protocol;
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            bit<16> new = hdr.ipv4.ttl ++ hdr.ipv4.protocol;
            hdr.ipv4.checksum = csum_replace2(hdr.ipv4.checksum, old, new);
            classes.apply();
        }
    }
}

control mark_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

ubpf(mark_parser(), mark(), mark_deparser()) main;
