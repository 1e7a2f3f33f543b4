// Ternary, range, optional, lpm and exact keys, alone and mixed, with priorities.
#include <v1model.p4>

header h_t { bit<8> which; bit<16> a; bit<16> b; bit<8> c; bit<8> result; }
struct headers_t { h_t h; }
struct meta_t { }

#include "v1.p4"

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action set(bit<8> v) { hdr.h.result = v; }
    action nothing() { }
    table ternaries {
        key = { hdr.h.a : ternary; hdr.h.c : ternary; }
        actions = { set; nothing; }
        default_action = set(0xee);
        size = 100;
    }
    table ranges {
        key = { hdr.h.a : range; hdr.h.b : range; }
        actions = { set; nothing; }
        default_action = nothing();
    }
    table mixed {
        key = { hdr.h.a : exact; hdr.h.b : lpm; hdr.h.c : optional; }
        actions = { set; nothing; }
        default_action = nothing();
    }
    table prefixes {
        key = { hdr.h.a : lpm; hdr.h.b : lpm; }
        actions = { set; nothing; }
        default_action = nothing();
    }
    table constant {
        key = { hdr.h.a : ternary; hdr.h.b : range; }
        actions = { set; nothing; }
        default_action = nothing();
        const entries = {
            (0x1200 &&& 0xff00, 10 .. 20) : set(1);
            (0x1200 &&& 0xf000, _) : set(2);
            (_, 0 .. 0xffff) : set(3);
        }
    }
    table ranked {
        key = { hdr.h.a : ternary; }
        actions = { set; nothing; }
        default_action = nothing();
        largest_priority_wins = false;
        priority_delta = 10;
        entries = {
            priority = 30 : 0x10 &&& 0xf0 : set(7);
            priority = 20 : 0x11 : set(8);
            const priority = 5 : 0x12 : set(9);
        }
    }
    apply {
        switch (hdr.h.which) {
            1: { ternaries.apply(); }
            2: { if (ranges.apply().miss) { hdr.h.result = 0xdd; } }
            3: { if (!mixed.apply().hit) { hdr.h.result = 0xdd; } }
            4: { prefixes.apply(); }
            5: { constant.apply(); }
            6: { ranked.apply(); }
            default: { mark_to_drop(std); }
        }
    }
}

V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
