// Sheds the load that fills the VM's network, and no other traffic. While more than 30 % of the VM's link is in use, it
// drops UDP datagrams to port 9000; they pass again once less than 10 % is in use. All other packets pass. A register
// keeps the state from packet to packet, so that the decision does not flap at one threshold. The hysteresis
// experiment of TransP4 (Tashiro, Iwai and Kourai, 2026, section 5.1); `p4shield-dev bench xsk` runs it.
//
// Bind it to ingress. The agent has to publish the interface with its speed: p4shield agent run --interface
// eth0:1000. While the utilisation is unknown, the program sheds the load. Later fragments contain no port and
// pass.

#include <ubpf_model.p4>
#include <p4shield.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> LOAD_PORT = 9000;

// Hundredths of a percent of the link's speed.
const bit<64> HIGH = 3000;
const bit<64> LOW = 1000;

// Number of the field that get_rx_utilisation(0) reads.
const bit<32> RX_UTILISATION = 68;

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

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> total_length;
    bit<16> checksum;
}

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         ipv4;
    ipv4_options_t ipv4_options;
    udp_t          udp;
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
            (0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.header_words - 5) * 32);
        packet.extract(hdr.udp);
        transition accept;
    }
}

control guard(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    // Element 0: 1 while the load is shed. Zero when the program is loaded.
    Register<bit<1>, bit<32>>(1) shedding;

    apply {
        if (hdr.udp.isValid() && hdr.udp.dst_port == LOAD_PORT) {
            if (vm_info_status() != 0 || !vm_info_known(RX_UTILISATION)) {
                mark_to_drop();
                return;
            }
            bit<64> used = get_rx_utilisation(0);
            bit<1> state = shedding.read(0);
            if (state == 0 && used > HIGH) {
                state = 1;
            } else if (state == 1 && used < LOW) {
                state = 0;
            }
            shedding.write(0, state);
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
