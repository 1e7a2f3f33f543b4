// Every packet goes to a group of two ports. Ingress counts it, which a program may do for all copies only if it is divided.
#include <v1model.p4>

header ethernet_t { bit<48> destination; bit<48> source; bit<16> type; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control Nothing(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    register<bit<32>>(1) packets;
    apply {
        bit<32> n;
        packets.read(n, 0);
        packets.write(0, n + 1);
        std.mcast_grp = 1;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { hdr.ethernet.source[15:0] = std.egress_rid; }
}
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }
V1Switch(P(), Nothing(), I(), E(), Nothing(), D()) main;
