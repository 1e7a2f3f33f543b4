// Action selectors with groups, action profiles, parser value sets, hash algorithms of selectors.
#include <v1model.p4>

header h_t { bit<8> kind; bit<8> key; bit<16> flow; bit<8> sent; bit<8> set; }
struct headers_t { h_t h; }
struct meta_t { bit<8> set; }

#include "v1.p4"

struct pair_t { bit<8> kind; bit<8> key; }

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    value_set<bit<8>>(4) kinds;
    value_set<pair_t>(4) pairs;
    state start {
        p.extract(hdr.h);
        transition select(hdr.h.kind) { kinds: one; default: second; }
    }
    state one { meta.set = 1; transition accept; }
    state second {
        transition select(hdr.h.kind, hdr.h.key) { pairs: two; default: accept; }
    }
    state two { meta.set = 2; transition accept; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    action send(bit<8> n) { hdr.h.sent = n; }
    action none() { hdr.h.sent = 0xee; }
    table choose {
        key = { hdr.h.key : exact; hdr.h.flow : selector; }
        actions = { send; none; }
        implementation = action_selector(HashAlgorithm.identity, 32w16, 32w16);
        default_action = none();
    }
    table profile {
        key = { hdr.h.key : exact; }
        actions = { send; NoAction; }
        implementation = action_profile(32w8);
    }
    apply {
        choose.apply();
        profile.apply();
        hdr.h.set = meta.set;
    }
}

V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
