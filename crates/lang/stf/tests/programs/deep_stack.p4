// A loop of states iterates as often as its stack has elements, also beyond the limit of other loops.
#include <core.p4>
#include <ubpf_model.p4>
#include <p4shield.p4>
header lab_t { bit<8> v; }
header cnt_t { bit<8> n; }
struct hs_t { cnt_t c; lab_t[42] labs; }
struct ms_t { }
parser Prs(packet_in pkt, out hs_t hs, inout ms_t ms, inout standard_metadata sm) {
    state start { pkt.extract(hs.c); transition labs; }
    state labs {
        pkt.extract(hs.labs.next);
        transition select(hs.labs.last.v) { 0x80 &&& 0x80: accept; default: labs; }
    }
}
control Pipe(inout hs_t hs, inout ms_t ms, inout standard_metadata sm) { apply { hs.c.n = hs.c.n + 1; } }
control Dep(packet_out pkt, in hs_t hs) { apply { pkt.emit(hs.c); pkt.emit(hs.labs); } }
ubpf(Prs(), Pipe(), Dep()) main;
