// Denies new connections from the moment when TCP memory is short until it has recovered well, so that the decision
// does not flap around the threshold. A register keeps the state from packet to packet.
//
// Bind it to ingress. Denial begins at the tenant's threshold and ends at three quarters of it.

#include <ubpf_model.p4>
#include <p4shield.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_TCP = 6;

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

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         ipv4;
    ipv4_options_t ipv4_options;
    tcp_t          tcp;
}

struct metadata_t {
}

parser guard_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
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
    // Element 0: 1 while new connections are denied. Zero when the program is loaded.
    Register<bit<1>, bit<32>>(1) denying;

    apply {
        // SYN without ACK
        if (hdr.tcp.isValid() && hdr.tcp.flags & 0x12 == 0x02) {
            if (vm_info_status() != 0) {
                mark_to_drop();
                return;
            }
            bit<64> used = get_tcp_mem_used();
            bit<64> threshold = get_tcp_mem_threshold();
            bit<1> state = denying.read(0);
            if (state == 0 && used > threshold) {
                state = 1;
            } else if (state == 1 && used < threshold - (threshold >> 2)) {
                state = 0;
            }
            denying.write(0, state);
            if (state == 1) {
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
