#include <ubpf_model.p4>

header ethernet_t { bit<96> addresses; bit<16> type; }
header ipv4_t { bit<72> front; bit<8> protocol; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t {}

#ifdef BURN
extern bit<32> burn(in bit<32> start);
#endif

parser p(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x800: ip; default: accept; }
    }
    state ip { packet.extract(hdr.ipv4); transition accept; }
}

control c(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    apply {
        if (hdr.ethernet.type == 0) { mark_to_drop(); }
#ifdef BURN
        if (hdr.ipv4.isValid() && hdr.ipv4.protocol == 17 && burn(1) == 0) { mark_to_drop(); }
#endif
    }
}

control d(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); }
}

ubpf(p(), c(), d()) main;
