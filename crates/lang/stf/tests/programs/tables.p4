// ubpf_model: keyless tables, defaults, wide keys and data, hit and miss, ports.
#include <ubpf_model.p4>

header h_t { bit<8> which; bit<128> key; bit<128> value; }
struct headers_t { h_t h; }
struct meta_t { bit<1> done; }

parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {
    state start { p.extract(hdr.h); transition accept; }
}

control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {
    action wide(bit<128> v, bit<4> small, bool flag) {
        hdr.h.value = flag ? v : (bit<128>) small;
    }
    action port(bit<32> to) { std.output_port = to; }
    table keyless { actions = { port; NoAction; } default_action = port(6); }
    table alone { actions = { NoAction; } default_action = NoAction; }
    table wides {
        key = { hdr.h.key : exact @name("six"); }
        actions = { wide; @defaultonly NoAction; }
        size = 4;
    }
    apply {
        keyless.apply();
        alone.apply();
        if (hdr.h.which == 1) {
            if (wides.apply().miss) { mark_to_drop(); }
        }
    }
}
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr.h); } }

ubpf(prs(), pipe(), dprs()) main;
