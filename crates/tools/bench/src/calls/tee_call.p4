// The program of TEE Time at P4, whose secret part is a function: XOR a field, add one, XOR back.
#include <v1model.p4>

@compartment
extern bit<32> secret(in bit<32> value);

header ethernet_t { bit<48> destination; bit<48> source; bit<16> type; }
header ipv4_t { bit<96> before; bit<32> source; bit<32> destination; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { packet.extract(hdr.ethernet); packet.extract(hdr.ipv4); transition accept; }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    action drop() { mark_to_drop(std); }
    action forward(bit<9> port) { std.egress_spec = port; }
    table by_port {
        key = { std.ingress_port: exact; }
        actions = { forward; drop; }
        size = 1024;
        default_action = drop();
    }
    apply {
        hdr.ipv4.source = secret(hdr.ipv4.source);
        by_port.apply();
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); } }
V1Switch(P(), Nothing(), I(), E(), Nothing(), D()) main;
