// Passes TCP and UDP packets only to the ports listed here, and counts them.
//
// Bind it to ingress. The list is part of the program: changing it takes another program, with another digest in
// the execution log. Packets that are neither TCP nor UDP over IPv4 pass.

#include <ubpf_model.p4>
#include <p4shield.p4>

const bit<16> TYPE_IPV4 = 0x0800;

enum bit<8> Protocol {
    TCP = 6,
    UDP = 17
}

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

header ipv4_options_t {
    varbit<320> data;
}

// The ports, which TCP and UDP have in common.
header ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         ipv4;
    ipv4_options_t ipv4_options;
    ports_t        ports;
}

struct metadata_t {
}

parser filter_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.header_words >= 5, error.ParserInvalidArgument);
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, Protocol.TCP): parse_ports;
            (0, Protocol.UDP): parse_ports;
            default: accept;
        }
    }

    state parse_ports {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.header_words - 5) * 32);
        packet.extract(hdr.ports);
        transition accept;
    }
}

control filter(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    // Element n counts packets for service n; element 0 counts refused packets.
    @metric Counter<bit<32>>(4) services;

    action allow(bit<32> service) {
        services.increment(service);
    }

    action refuse() {
        services.increment(0);
        mark_to_drop();
    }

    table allowed {
        key = {
            hdr.ports.dst_port : exact;
            hdr.ipv4.protocol  : exact;
        }
        actions = { allow; refuse; }
        const entries = {
            ( 22, Protocol.TCP) : allow(1);
            ( 80, Protocol.TCP) : allow(2);
            (443, Protocol.TCP) : allow(2);
            (443, Protocol.UDP) : allow(2);
            ( 53, Protocol.UDP) : allow(3);
        }
        const default_action = refuse();
    }

    apply {
        if (hdr.ports.isValid()) {
            allowed.apply();
        }
    }
}

control filter_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

ubpf(filter_parser(), filter(), filter_deparser()) main;
