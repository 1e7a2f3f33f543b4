// A tenant's switch: the chains of the MTS paper, and the answers to ARP and to neighbour discovery (RFC 4861),
// which end at the switch. The rules for Open vSwitch say the same (`p4shield_topology`, `flows`).
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_ARP = 0x0806;
const bit<16> TYPE_IPV6 = 0x86dd;
const bit<8> PROTOCOL_ICMPV6 = 58;

const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<8> ROUTER_SOLICITATION = 133;
const bit<8> SOLICITATION = 135;
const bit<8> ADVERTISEMENT = 136;
const bit<8> REDIRECT = 137;

// The flags "solicited" and "override" of an advertisement (RFC 4861, section 4.4), and those with "router".
const bit<32> SOLICITED_OVERRIDE = 0x60000000;
const bit<32> ROUTER = 0xe0000000;
// An advertisement with the option for the address of the link layer: in IPv6, and as a frame.
const bit<16> ADVERTISEMENT_BYTES = 32;
const bit<32> ADVERTISEMENT_FRAME = 86;

// The port of packets that the host has the switch send, and the group of the port to the outside.
const bit<9> HOST = 510;
const bit<16> OUTSIDE = 0;

@controller_header("packet_out")
header packet_out_t {
    bit<7> padding;
    bit<9> port;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header arp_t {
    bit<16> hardware;
    bit<16> protocol;
    bit<8>  hardware_bytes;
    bit<8>  protocol_bytes;
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender;
    bit<48> target_mac;
    bit<32> target;
}

header ipv4_t {
    bit<128> before_destination;
    bit<32>  destination;
}

header ipv6_t {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow_label;
    bit<16>  payload_bytes;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> source;
    bit<128> destination;
}

header icmpv6_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
}

header neighbour_t {
    bit<32>  flags;
    bit<128> target;
}

header link_layer_option_t {
    bit<8>  type;
    bit<8>  length;
    bit<48> address;
}

struct headers_t {
    packet_out_t        packet_out;
    ethernet_t          ethernet;
    arp_t               arp;
    ipv4_t              ipv4;
    ipv6_t              ipv6;
    icmpv6_t            icmpv6;
    neighbour_t         neighbour;
    link_layer_option_t link_layer;
}

// The facts about the port where a packet came in, and the way of a packet for a VM.
struct metadata_t {
    bit<48>  mac;
    bit<16>  group;
    bit<32>  address4;
    bit<128> address6;
    bit<9>   port;
    bit<48>  source;
    bit<48>  destination;
}

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        transition select(std.ingress_port) {
            HOST: host;
            default: ethernet;
        }
    }
    state host {
        packet.extract(hdr.packet_out);
        transition accept;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_ARP: arp;
            TYPE_IPV4: ipv4;
            TYPE_IPV6: ipv6;
            default: accept;
        }
    }
    state arp {
        packet.extract(hdr.arp);
        meta.address4 = hdr.arp.target;
        transition accept;
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.address4 = hdr.ipv4.destination;
        transition accept;
    }
    state ipv6 {
        packet.extract(hdr.ipv6);
        meta.address6 = hdr.ipv6.destination;
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_ICMPV6: icmpv6;
            default: accept;
        }
    }
    state icmpv6 {
        packet.extract(hdr.icmpv6);
        transition select(hdr.icmpv6.type) {
            SOLICITATION: neighbour;
            default: accept;
        }
    }
    state neighbour {
        packet.extract(hdr.neighbour);
        meta.address6 = hdr.neighbour.target;
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() {
        mark_to_drop(std);
    }

    action is_at(bit<48> mac, bit<16> group) {
        meta.mac = mac;
        meta.group = group;
    }
    // The switch's address at a port. Its group is a tenant's number, or that of the outside.
    table ports {
        key = { std.ingress_port: exact; }
        actions = { is_at; drop; }
        default_action = drop();
        size = 512;
    }

    // A VM asks for an address of its own to find others with it: no answer.
    table own4 {
        key = {
            std.ingress_port: exact;
            hdr.ethernet.source: exact;
            hdr.arp.target: exact;
        }
        actions = { NoAction; }
        default_action = NoAction();
        size = 65536;
    }

    action to(bit<9> port, bit<48> source, bit<48> destination) {
        meta.port = port;
        meta.source = source;
        meta.destination = destination;
    }
    // The addresses of the VMs that a group reaches.
    table vms4 {
        key = {
            meta.group: exact;
            meta.address4: exact;
        }
        actions = { to; NoAction; }
        default_action = NoAction();
        size = 65536;
    }
    table vms6 {
        key = {
            meta.group: exact;
            meta.address6: exact;
        }
        actions = { to; NoAction; }
        default_action = NoAction();
        size = 65536;
    }
    // The way of what is for no VM: to the outside's router. The outside has none.
    table router {
        key = { meta.group: exact; }
        actions = { to; drop; }
        default_action = drop();
        size = 512;
    }

    action forward() {
        std.egress_spec = meta.port;
        hdr.ethernet.source = meta.source;
        hdr.ethernet.destination = meta.destination;
    }

    action answer_arp() {
        std.egress_spec = std.ingress_port;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.mac;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target = hdr.arp.sender;
        hdr.arp.sender_mac = meta.mac;
        hdr.arp.sender = meta.address4;
    }

    // Sets the addresses of an advertisement; what the solicitation had behind them goes.
    action answer_solicitation(bit<32> flags) {
        std.egress_spec = std.ingress_port;
        hdr.ethernet.destination = hdr.ethernet.source;
        hdr.ethernet.source = meta.mac;
        hdr.ipv6.payload_bytes = ADVERTISEMENT_BYTES;
        hdr.ipv6.destination = hdr.ipv6.source;
        hdr.ipv6.source = hdr.neighbour.target;
        hdr.icmpv6.type = ADVERTISEMENT;
        hdr.neighbour.flags = flags;
        hdr.link_layer.setValid();
        hdr.link_layer.type = 2;
        hdr.link_layer.length = 1;
        hdr.link_layer.address = meta.mac;
        truncate(ADVERTISEMENT_FRAME);
    }

    apply {
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.port;
            hdr.packet_out.setInvalid();
            return;
        }
        if (!ports.apply().hit) {
            return;
        }
        bool is_outside = meta.group == OUTSIDE;
        bool is_vms = false;
        if (hdr.arp.isValid() || hdr.ipv4.isValid()) {
            is_vms = vms4.apply().hit;
        } else if (hdr.ipv6.isValid()) {
            is_vms = vms6.apply().hit;
        } else {
            drop();
            return;
        }
        if (hdr.arp.isValid()) {
            bool is_question = hdr.arp.operation == ARP_REQUEST && hdr.arp.hardware == 1
                && hdr.arp.protocol == TYPE_IPV4 && hdr.arp.hardware_bytes == 6 && hdr.arp.protocol_bytes == 4;
            if (!is_question || (is_outside && !is_vms)) {
                drop();
            } else if (!is_outside && own4.apply().hit) {
                drop();
            } else {
                answer_arp();
            }
        } else if (hdr.icmpv6.isValid() && hdr.icmpv6.type >= ROUTER_SOLICITATION && hdr.icmpv6.type <= REDIRECT) {
            // A machine that has no address yet asks whether another one has it.
            bool is_question = hdr.neighbour.isValid() && hdr.icmpv6.code == 0 && hdr.ipv6.hop_limit == 255
                && hdr.ipv6.source != 0;
            if (!is_question || (is_outside && !is_vms)) {
                drop();
            } else if (is_outside) {
                answer_solicitation(SOLICITED_OVERRIDE);
            } else {
                answer_solicitation(ROUTER);
            }
        } else if (hdr.ethernet.destination != meta.mac) {
            drop();
        } else if (is_vms) {
            forward();
        } else if (router.apply().hit) {
            forward();
        }
    }
}

control NoEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control SwitchUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.link_layer.isValid(),
            { hdr.ipv6.source, hdr.ipv6.destination, 16w0, hdr.ipv6.payload_bytes, 24w0, hdr.ipv6.next_header,
              hdr.icmpv6.type, hdr.icmpv6.code, hdr.neighbour.flags, hdr.neighbour.target, hdr.link_layer.type,
              hdr.link_layer.length, hdr.link_layer.address },
            hdr.icmpv6.checksum, HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_out);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.icmpv6);
        packet.emit(hdr.neighbour);
        packet.emit(hdr.link_layer);
    }
}

V1Switch(SwitchParser(), NoVerify(), SwitchIngress(), NoEgress(), SwitchUpdate(), SwitchDeparser()) main;
