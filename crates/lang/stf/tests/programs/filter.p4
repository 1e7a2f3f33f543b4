// ebpf_model: a filter with the C names of the model, an LPM table and counters.
#include <ebpf_model.p4>
#include <p4shield.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
header ipv4_t { bit<96> front; bit<32> src; bit<32> dst; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }

parser prs(packet_in p, out headers_t headers) {
    state start {
        p.extract(headers.ethernet);
        transition select(headers.ethernet.kind) { 0x0800: ip; default: reject; }
    }
    state ip { p.extract(headers.ipv4); transition accept; }
}

control pipe(inout headers_t headers, out bool accept) {
    CounterArray(10, true) counters;
    action Reject(bit<8> why) { accept = false; counters.increment((bit<32>) why); }
    action Allow() { }
    table routes {
        key = { headers.ipv4.dst : lpm; }
        actions = { Reject; Allow; }
        default_action = Allow();
        implementation = hash_table(64);
    }
    table hosts {
        key = { headers.ipv4.src : exact; }
        actions = { Reject; NoAction; }
        implementation = array_table(16);
    }
    apply {
        accept = get_direction() == 0;
        switch (routes.apply().action_run) {
            Allow: { if (hosts.apply().hit) { counters.add(9, 2); } }
            default: { }
        }
        headers.ethernet.kind = 0;
    }
}

ebpfFilter(prs(), pipe()) main;
