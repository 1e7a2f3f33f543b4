// Between the blocks: parser errors, ports, drops, exit, truncate, assert, information.
#include <v1model.p4>
#include <p4shield.p4>

header h_t { bit<8> which; bit<8> why; bit<8> port; }
header rest_t { bit<32> value; }
struct headers_t { h_t h; rest_t rest; }
struct meta_t { }

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        p.extract(hdr.h);
        verify(hdr.h.which != 9, error.HeaderTooShort);
        transition select(hdr.h.which) {
            0x80 &&& 0x80: more;
            10: accept;
            0 .. 8: accept;
        }
    }
    state more { p.extract(hdr.rest); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action leave() { hdr.h.port = 0x55; exit; }
    apply {
        if (std.parser_error == error.PacketTooShort) { hdr.h.why = 1; }
        if (std.parser_error == error.HeaderTooShort) { hdr.h.why = 2; }
        if (std.parser_error == error.NoMatch) { hdr.h.why = 3; }
        if (hdr.rest.isValid()) { hdr.h.why = 4; }
        std.egress_spec = (bit<9>) hdr.h.port;
        if (hdr.h.which == 1) { mark_to_drop(std); }
        if (hdr.h.which == 2) { mark_to_drop(std); std.egress_spec = 7; }
        if (hdr.h.which == 3) { leave(); hdr.h.port = 0x66; }
        if (hdr.h.which == 4) { truncate(5); }
        if (hdr.h.which == 5) { assert(hdr.h.port == 1); }
        if (hdr.h.which == 6 && vm_info_status() != 0) { hdr.h.why = vm_info_status(); }
        if (hdr.h.which == 7 && get_tcp_mem_used() > 5) { std.egress_spec = 1; }
        log_msg("seen {}", { hdr.h.which });
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply { if (std.egress_port == 8) { mark_to_drop(std); } else { hdr.h.port = (bit<8>) std.egress_port; } }
}
control U(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.h); p.emit(hdr.rest); } }

V1Switch(P(), V(), I(), E(), U(), D()) main;
