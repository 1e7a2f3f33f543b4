// Forwards IPv4 by the longest prefix, and everything else (address resolution) to the other port of two.
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> type; }
header ipv4_t { bit<96> before; bit<32> source; bit<32> destination; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 { packet.extract(hdr.ipv4); transition accept; }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action forward(bit<9> port) { std.egress_spec = port; }
    table routes {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; drop; }
        size = 131072;
        default_action = drop();
    }
    apply {
        if (hdr.ipv4.isValid()) {
            routes.apply();
        } else {
            std.egress_spec = std.ingress_port ^ 1;
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); } }
V1Switch(P(), Nothing(), I(), E(), Nothing(), D()) main;
