// A packet asks for whatever the traffic manager can do, also without end. Ingress and egress count their runs.
#include <v1model.p4>
header h_t { bit<8> what; bit<8> only; bit<8> port; bit<8> session; bit<16> group; bit<16> keep; }
header pad_t { bit<512> pad; }
struct headers { h_t h; pad_t pad; }
struct meta_t { @field_list(1) bit<8> rounds; }
parser P(packet_in p, out headers hdr, inout meta_t m, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout meta_t m) { apply { } }
control I(inout headers hdr, inout meta_t m, inout standard_metadata_t std) {
    register<bit<32>>(1) runs_in;
    counter(8, CounterType.packets_and_bytes) seen;
    action to(bit<9> port) { std.egress_spec = port; }
    action many(bit<16> group) { std.mcast_grp = group; }
    action drop() { mark_to_drop(std); }
    table chosen {
        key = { hdr.h.port: exact; }
        actions = { to; many; drop; }
        size = 16;
        default_action = to(2);
        const entries = { 250: drop(); }
    }
    apply {
        bit<32> n;
        runs_in.read(n, 0);
        runs_in.write(0, n + 1);
        seen.count((bit<32>) hdr.h.session);
        std.egress_spec = (bit<9>) hdr.h.port;
        if (hdr.h.only[3:3] == 1) { chosen.apply(); }
        // INGRESS
        if (hdr.h.what[0:0] == 1 && (hdr.h.only[0:0] == 0 || m.rounds < 3)) {
            m.rounds = m.rounds + 1;
            resubmit_preserving_field_list(1);
        }
        if (hdr.h.what[1:1] == 1) { clone_preserving_field_list(CloneType.I2E, (bit<32>) hdr.h.session, 1); }
        if (hdr.h.what[2:2] == 1) { std.mcast_grp = hdr.h.group; }
        if (hdr.h.what[7:7] == 1) { mark_to_drop(std); }
    }
}
control E(inout headers hdr, inout meta_t m, inout standard_metadata_t std) {
    register<bit<32>>(1) runs_out;
    apply {
        bit<32> n;
        runs_out.read(n, 0);
        runs_out.write(0, n + 1);
        // QUEUES
        // EGRESS
        if (hdr.h.what[3:3] == 1 && (hdr.h.only[1:1] == 0 || std.instance_type == 0)) {
            clone(CloneType.E2E, (bit<32>) hdr.h.session);
        }
        if (hdr.h.what[4:4] == 1 && (hdr.h.only[2:2] == 0 || m.rounds < 3)) {
            m.rounds = m.rounds + 1;
            recirculate_preserving_field_list(1);
        }
        if (hdr.h.what[5:5] == 1) { truncate((bit<32>) hdr.h.keep); }
        if (hdr.h.what[6:6] == 1) { hdr.pad.setValid(); hdr.pad.pad = 7; }
    }
}
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
