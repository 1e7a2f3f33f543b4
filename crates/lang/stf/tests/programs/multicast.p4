// Multicast: egress runs once for each copy, with its number; other packets leave at ingress's port.
#include <v1model.p4>

header h_t { bit<8> kind; bit<8> port; bit<16> replica; bit<16> group; bit<8> instance; }
struct headers_t { h_t h; }
struct meta_t { bit<16> seen; }

#include "v1.p4"

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action flood(bit<16> group) { std.mcast_grp = group; meta.seen = 7; }
    action send() { std.egress_spec = 3; }
    action refuse() { mark_to_drop(std); }
    table kinds {
        key = { hdr.h.kind : exact; }
        actions = { flood; send; refuse; }
        default_action = refuse();
        const entries = { 1 : flood(1113); 2 : send(); 3 : flood(99); }
    }
    apply {
        kinds.apply();
        // A second thought: what is dropped goes to no group.
        if (hdr.h.instance == 0xdd) { mark_to_drop(std); }
    }
}

control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    counter(4, CounterType.packets) copies;
    apply {
        hdr.h.port = (bit<8>) std.egress_port;
        hdr.h.replica = std.egress_rid + (meta.seen << 8);
        hdr.h.group = std.mcast_grp;
        hdr.h.instance = (bit<8>) std.instance_type;
        copies.count(0);
        if (std.egress_rid == 9) { mark_to_drop(std); }
    }
}

V1Switch(P(), NoVerify(), I(), E(), NoUpdate(), Emit()) main;
