// A filter with a table and counters, whose packets leave by the other port of two.
#include <ebpf_model.p4>
header ethernet_t { bit<48> destination; bit<48> source; bit<16> type; }
struct headers { ethernet_t ethernet; }
parser p(packet_in packet, out headers hdr) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control c(inout headers hdr, out bool pass) {
    CounterArray(16, true) seen;
    action reject() { pass = false; seen.increment((bit<32>) hdr.ethernet.type); }
    table types {
        key = { hdr.ethernet.type: exact; }
        actions = { reject; NoAction; }
        implementation = hash_table(16);
        default_action = NoAction;
    }
    apply { pass = true; types.apply(); }
}
ebpfFilter(p(), c()) main;
