// A program that redirects to the port that a packet names.
#include <ubpf_model.p4>
header h_t { bit<8> what; bit<8> port; bit<96> rest; }
struct headers { h_t h; }
struct meta_t { }
parser p(packet_in packet, out headers hdr, inout meta_t m, inout standard_metadata s) {
    state start { packet.extract(hdr.h); transition accept; }
}
control c(inout headers hdr, inout meta_t m, inout standard_metadata s) {
    Register<bit<32>, bit<32>>(4) seen;
    apply {
        seen.write(0, seen.read(0) + 1);
        s.output_port = (bit<32>) hdr.h.port;
        if (hdr.h.what[0:0] == 1) { s.output_action = ubpf_action.REDIRECT; }
        if (hdr.h.what[1:1] == 1) { mark_to_drop(); }
        if (hdr.h.what[2:2] == 1) { hdr.h.setInvalid(); }
    }
}
control d(packet_out packet, in headers hdr) { apply { packet.emit(hdr.h); } }
ubpf(p(), c(), d()) main;
