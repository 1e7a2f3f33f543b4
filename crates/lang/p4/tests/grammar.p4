// Every production of the grammar once; only ever parsed.
@name("x") @pragma_like[a, b] typedef bit<32> Addr;
type bit<9> Port;
typedef struct Inner { bit<8> a; } InnerAlias;
const Addr A = 32w0x0A_00_00_01;
const int N = -5;
const tuple<bit<8>, bool> TU = { 8w1, true };
error { Mine, Other }
match_kind { range, optional, selector }
enum Color { RED, GREEN }
enum bit<8> Kind { One = 1, Two = 2, }
header Ethernet { bit<48> dst; bit<48> src; bit<16> type; }
header Opt { varbit<320> data; }
header_union U { Ethernet e; Opt o; }
struct Gen<T> { T t; bit<8> rest; }
struct Headers { Ethernet eth; Opt[4] opts; Ethernet more[2]; Gen<bit<8>> g; }
extern Box<T> {
    Box(bit<32> size);
    Box();
    @pure T get(in bit<32> i);
    void set<S>(in S i, out T v, inout bit<8> w = 8w1);
    abstract bit<16> on(in bit<16> v);
}
extern Empty;
extern void call();
extern R generic<R, A>(in A a, @optional in bit<8> o);
parser PT<H>(packet_in p, out H h);
control CT<H>(inout H h);
package Pkg<H>(PT<H> p, CT<H> c, bit<8> n = 8);
bit<8> maximum(in bit<8> a, in bit<8> b) {
    if (a > b) { return a; } else return b;
}
T identity<T>(in T t) { return t; }
action top(bit<8> data, in bit<8> i, out bit<8> o) { o = i + data; exit; }
parser P(packet_in p, out Headers h)(bit<8> ctor) {
    value_set<bit<16>>(4) vs;
    value_set<tuple<bit<8>, bit<8>>>(4) vs2;
    Box<bit<8>>(16) box;
    bit<8> local = 1;
    const bit<8> K = 3;
    state start {
        p.extract(h.eth);
        bit<16> t = p.lookahead<bit<16>>();
        verify(t != 0, error.Mine);
        { local = 2; }
        if (t == 1) local = 3;
        transition select(h.eth.type, t[7:0]) {
            (0x800, 8w1): next;
            (0x800 &&& 0xF00, 1 .. 7): next;
            (_, default): next;
            (vs, 8w3): next;
            default: accept;
        }
    }
    @name("n") state next {
        p.extract(h.opts.next, 32);
        transition select(h.opts.lastIndex) { (0 &&& 1): next; 3: accept; _: reject; }
    }
    state dead { transition next; }
    state no_transition { }
}
control C(inout Headers h)(bit<8> ctor) {
    action a(in bit<8> x) { h.g.t = x; }
    @hidden action b() { }
    table t {
        key = { h.eth.dst : exact @name("dst"); h.eth.src & 1 : ternary; h.eth.type : lpm; }
        actions = { a(8w1); @defaultonly b; .top; NoAction; }
        const default_action = a(8w1);
        const entries = {
            (1, 2, 0x0800 &&& 0xFF00) : b();
            priority = 10 : (1, _, default) : b() @name("e");
            const (1, 2 &&& 3, 4) : a(8w2);
        }
        size = 1024;
        largest_priority_wins = false;
        implementation = Box<bit<8>>(3);
    }
    Box<bit<8>>(4) box = {
        bit<16> on(in bit<16> v) { return this.get(1) + v; }
    };
    bit<8> v;
    apply {
        ; v = 1; v += 1; v -= 1; v *= 2; v /= 2; v %= 2; v &= 1; v |= 1; v ^= 1; v <<= 1; v >>= 1; v |+|= 1; v |-|= 1;
        h.g = { t = 1, rest = 2 };
        h.g = { t = 1, ... };
        h.g = { 1, 2 };
        h.eth = {#};
        h.eth = (Ethernet) { 1, 2, 3 };
        v[3:0] = 4w1 ++ 0;
        v[2+:3] = 1;
        v = (bit<8>) (~v << 2) >> 1 | -v & +v ^ (v |+| 1) |-| 2;
        v = h.eth.isValid() && !(v != 1) || v <= 2 && v >= 3 ? 8w1 : 8w2;
        generic<bit<8>, bit<8>>(v);
        call();
        box.set(i = 8w1, v = v, w = _);
        maximum(1, 2);
        top(1, v, v);
        if (t.apply().hit) { } else if (!t.apply().miss) { }
        switch (t.apply().action_run) {
            a: b: { v = 1; }
            default: { return; }
        }
        switch (v) { 1: 2: { } 8w3: { } default: { } }
        for (bit<8> i = 0, bit<8> j = 1; i < 4; i = i + 1, j += 2) { if (i == 1) continue; if (i == 2) break; }
        for (; v < 3; ) { v = v + 1; }
        for (bit<8> i in 1 .. 4) v = i;
        for (@x bit<8> i in h.list_) { v = i; }
        @atomic { v = 2; }
        Ethernet e;
        Ethernet[3] stack;
        C2() inst;
        Headers hh = ...;
        list<tuple<bit<8>, bit<8>>> l = { {1, 2}, {3, 4} };
        stack[1].dst = 5; stack.push_front(1);
        (v) = 3;
        h.x.apply(v);
        return;
    }
}
Pkg<Headers>(P(1), C(2), n = 3) main;
