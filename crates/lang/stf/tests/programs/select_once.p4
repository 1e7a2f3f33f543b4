// Each subject of `select` is evaluated once, also one with several fields.
#include <ubpf_model.p4>

header in_t { bit<8> a; bit<8> seen; bit<8> calls; bit<8> way; bit<80> rest; }
struct headers_t { in_t i; }
struct meta_t {}

bit<8> next(inout bit<8> x) {
    x = x + 1;
    return x;
}

tuple<bit<8>, bit<8>> both(inout bit<8> x) {
    x = x + 1;
    return { x, 5 };
}

parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {
    state start {
        p.extract(hdr.i);
        transition select(hdr.i.way) {
            0: whole;
            1: parts;
            default: either;
        }
    }
    state whole {
        transition select(both(hdr.i.a)) {
            (1, 5): first;
            default: other;
        }
    }
    state parts {
        transition select({ next(hdr.i.a), next(hdr.i.a) }) {
            (1, 2): first;
            default: other;
        }
    }
    state either {
        transition select(hdr.i.way, hdr.i.way == 2 ? both(hdr.i.a) : { next(hdr.i.a), 7 }) {
            (2, { 1, 5 }): first;
            (3, { 1, 7 }): first;
            default: other;
        }
    }
    state first {
        hdr.i.seen = 1;
        transition other;
    }
    state other {
        hdr.i.calls = hdr.i.a;
        transition accept;
    }
}

control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {
    apply {}
}

control dprs(packet_out p, in headers_t hdr) {
    apply {
        p.emit(hdr);
    }
}

ubpf(prs(), pipe(), dprs()) main;
