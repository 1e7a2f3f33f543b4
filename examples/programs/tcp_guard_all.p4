// As tcp_guard.p4, but reads the information for every packet with a TCP header, as the paper measures it (P4 Shield,
// section V-B): the cost of a program that reads in-VM information for each packet.
//
// The rule is the same: it denies new connections while TCP memory is over the threshold or unknown.

#include <ubpf_model.p4>
#include <p4shield.p4>

const bit<16> TYPE_VLAN = 0x8100;
const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_TCP = 6;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header vlan_t {
    bit<3>  priority;
    bit<1>  drop_eligible;
    bit<12> id;
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

header ipv4_options_t {
    varbit<320> data;
}

header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<4>  header_words;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

const bit<8> FLAG_SYN = 0x02;
const bit<8> FLAG_ACK = 0x10;

struct headers_t {
    ethernet_t     ethernet;
    vlan_t         vlan;
    ipv4_t         ipv4;
    ipv4_options_t ipv4_options;
    tcp_t          tcp;
}

struct metadata_t {
    bool memory_is_short;
}

parser guard_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_VLAN: parse_vlan;
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.type) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.header_words >= 5, error.ParserInvalidArgument);
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, PROTOCOL_TCP): parse_tcp;
            default: accept;
        }
    }

    state parse_tcp {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.header_words - 5) * 32);
        packet.extract(hdr.tcp);
        transition accept;
    }
}

control guard(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    apply {
        if (hdr.tcp.isValid()) {
            bit<64> tcp_mem = get_tcp_mem();
            meta.memory_is_short = vm_info_status() != 0 || tcp_mem[63:32] < tcp_mem[31:0];
            if (meta.memory_is_short && hdr.tcp.flags & (FLAG_SYN | FLAG_ACK) == FLAG_SYN) {
                mark_to_drop();
            }
        }
    }
}

control guard_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

ubpf(guard_parser(), guard(), guard_deparser()) main;
