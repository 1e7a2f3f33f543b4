// A router with an access list: 1,000 rules with masks, then 10,000 prefixes.
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> type; }
header ipv4_t {
    bit<8> version; bit<8> service; bit<16> length; bit<32> fragment; bit<8> ttl; bit<8> protocol; bit<16> checksum;
    bit<32> source; bit<32> destination;
}
header ports_t { bit<16> source; bit<16> destination; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; ports_t ports; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.ports);
        transition accept;
    }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action forward(bit<48> next_hop, bit<9> port) {
        std.egress_spec = port;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = next_hop;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    table acl {
        key = {
            hdr.ipv4.source: ternary;
            hdr.ipv4.destination: ternary;
            hdr.ipv4.protocol: ternary;
            hdr.ports.destination: ternary;
        }
        actions = { drop; NoAction; }
        size = 1024;
        default_action = NoAction();
    }
    table routes {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; drop; }
        size = 16384;
        default_action = drop();
    }
    apply {
        switch (acl.apply().action_run) {
            NoAction: { routes.apply(); }
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); packet.emit(hdr.ports); }
}
V1Switch(P(), Nothing(), I(), E(), Nothing(), D()) main;
