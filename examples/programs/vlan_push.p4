// Lengthens packets: adds the VM's VLAN tag to every packet without a tag. The attachment grows the packet by
// four bytes at its front.
//
// Bind it to egress.

#include <ubpf_model.p4>
#include <p4shield.p4>

const bit<16> TYPE_VLAN = 0x8100;
const bit<12> FIRST_VLAN = 100;

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

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
}

struct metadata_t {
}

parser push_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_VLAN: parse_vlan;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition accept;
    }
}

control push(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    apply {
        if (hdr.vlan.isValid()) {
            // A VM does not choose its own tag.
            mark_to_drop();
        } else {
            hdr.vlan.setValid();
            hdr.vlan = { priority = 0, drop_eligible = 0, id = FIRST_VLAN + (bit<12>)get_vm(), type = hdr.ethernet.type };
            hdr.ethernet.type = TYPE_VLAN;
        }
    }
}

control push_deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
    }
}

ubpf(push_parser(), push(), push_deparser()) main;
