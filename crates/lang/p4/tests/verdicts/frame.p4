#include <ubpf_model.p4>
header h_t { bit<8> a; int<8> s; bit<16> w; bool t; bit<7> pad; }
header g_t { bit<8> b; }
header v_t { bit<8> n; varbit<64> v; }
header_union u_t { h_t h; g_t g; }
struct pair_t { bit<8> x; bit<8> y; }
struct headers_t { h_t h; g_t g; h_t[3] hs; u_t u; v_t v; }
struct meta_t { bit<8> x; bit<8> y; bool ok; pair_t pair; }
enum color_t { RED, GREEN }
enum bit<8> code_t { ONE = 1, TWO = 2 }
const bit<8> CONSTANT = 7;
bit<8> twice(in bit<8> v) { return v + v; }
void put(out bit<8> v) { v = 1; }
void change(inout bit<8> v) { v = v + 1; }
TOP
parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {
PARSER
state start { p.extract(hdr.h); STATE
 transition accept; }
STATES
}
control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {
action set(bit<8> v) { hdr.h.a = v; }
LOCALS
apply {
BODY
}
}
control dprs(packet_out p, in headers_t hdr) { apply {
p.emit(hdr.h);
DEPARSER
} }
ubpf(prs(), pipe(), dprs()) main;
