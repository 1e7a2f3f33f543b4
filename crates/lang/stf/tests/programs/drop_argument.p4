// `mark_to_drop(x)` marks x, which need not be the pipeline's own metadata.
#include <v1model.p4>

header h_t { bit<8> which; bit<24> rest; }
struct headers_t { h_t h; }
struct meta_t { standard_metadata_t kept; }
struct pair_t { bit<8> before; standard_metadata_t inner; }

#include "v1.p4"

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}
void by_function(inout standard_metadata_t s) { mark_to_drop(s); }
void by_two(inout standard_metadata_t s) { by_function(s); }
control Sub(inout standard_metadata_t s) { apply { mark_to_drop(s); } }
control Twice(inout standard_metadata_t s, inout bit<9> port) { apply { mark_to_drop(s); port = 3; } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action my_drop(inout standard_metadata_t s) { mark_to_drop(s); }
    action leave(inout standard_metadata_t s) { mark_to_drop(s); exit; }
    action out_only(out standard_metadata_t s) { mark_to_drop(s); }
    table t { key = { } actions = { my_drop(std); } const default_action = my_drop(std); }
    Sub() sub;
    Twice() twice;
    apply {
        std.egress_spec = 2;
        std.mcast_grp = 0;
        if (hdr.h.which == 1) { my_drop(std); }
        if (hdr.h.which == 2) { t.apply(); }
        if (hdr.h.which == 3) { by_function(std); }
        if (hdr.h.which == 4) { by_two(std); }
        if (hdr.h.which == 5) { sub.apply(std); }
        if (hdr.h.which == 6) { standard_metadata_t copy = std; mark_to_drop(copy); std = copy; }
        if (hdr.h.which == 7) { meta.kept = std; mark_to_drop(meta.kept); std = meta.kept; }
        if (hdr.h.which == 8) { pair_t p = { 0, std }; mark_to_drop(p.inner); std = p.inner; }
        if (hdr.h.which == 9) { leave(std); }
        if (hdr.h.which == 10) { out_only(std); }
        // The copy of the port comes last, so the packet is not dropped.
        if (hdr.h.which == 11) { twice.apply(std, std.egress_spec); }
        // Private copies, which the pipeline does not see.
        if (hdr.h.which == 16) { standard_metadata_t copy = std; mark_to_drop(copy); }
        if (hdr.h.which == 17) { standard_metadata_t copy = std; my_drop(copy); by_two(copy); sub.apply(copy); }
        if (hdr.h.which == 18) { meta.kept = std; mark_to_drop(meta.kept); }
        if (hdr.h.which == 19) { my_drop(std); std.egress_spec = 4; }
        if (hdr.h.which == 20) { mark_to_drop(); std.egress_spec = 5; }
        if (hdr.h.which == 21) { mark_to_drop(); }
        if (hdr.h.which == 22) {
            standard_metadata_t copy = std; mark_to_drop(copy);
            hdr.h.rest = (bit<24>)copy.egress_spec;
        }
    }
}
V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
