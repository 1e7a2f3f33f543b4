// Registers of any width, counters and meters, direct and indirect.
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

header h_t { bit<8> which; bit<8> index; bit<96> wide; bit<8> colour; }
struct headers_t { h_t h; }
struct meta_t { bit<2> colour; }

#include "v1.p4"

parser P(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start { p.extract(hdr.h); transition accept; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    register<bit<96>, bit<8>>(4) wides;
    register<bit<4>, bit<8>>(16) small;
    counter<bit<8>>(8, CounterType.packets_and_bytes) seen;
    counter<bit<8>>(8, CounterType.bytes) octets;
    meter<bit<8>>(4, MeterType.packets) rate;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.bytes) speed;
    action colour() { speed.read(meta.colour); }
    action nothing() { }
    table counted {
        key = { hdr.h.index : exact; }
        actions = { nothing; }
        default_action = nothing();
        counters = hits;
    }
    table metered {
        key = { hdr.h.index : exact; }
        actions = { colour; nothing; }
        default_action = nothing();
        meters = speed;
    }
    apply {
        if (hdr.h.which == 1) {
            wides.read(hdr.h.wide, hdr.h.index);
        } else if (hdr.h.which == 2) {
            wides.write(hdr.h.index, hdr.h.wide);
            bit<4> four;
            small.read(four, hdr.h.index);
            small.write(hdr.h.index, four + 7);
            hdr.h.colour = (bit<8>) four;
        } else if (hdr.h.which == 3) {
            seen.count(hdr.h.index);
            octets.count(hdr.h.index);
            counted.apply();
        } else {
            rate.execute_meter<bit<8>>(hdr.h.index, hdr.h.colour);
            metered.apply();
            hdr.h.index = (bit<8>) meta.colour;
        }
    }
}

V1Switch(P(), NoVerify(), I(), NoEgress(), NoUpdate(), Emit()) main;
