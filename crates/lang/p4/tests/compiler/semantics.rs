//! The semantics of the language, where compilers are known to have bugs.
//!
//! The first tests reproduce known miscompilations of p4c-ubpf (research/p4-and-ebpf.md, section 1.6).

use crate::common::{Bench, program};

/// Runs a control over a header of two 8-bit fields and returns both.
fn run(locals: &str, body: &str, a: u8, b: u8) -> Option<(u8, u8)> {
    let mut bench = Bench::new(&program("bit<8> a; bit<8> b;", "", locals, body));
    let out = bench.run(&[a, b]);
    out.pass.then(|| (out.bytes[0], out.bytes[1]))
}

#[test]
fn statements_behind_a_register_read_in_an_if_are_executed() {
    let locals = "Register<bit<8>, bit<32>>(4) r;";
    let body = "if (hdr.h.a == 1) { hdr.h.a = r.read(2); } hdr.h.b = 7;";
    assert_eq!(run(locals, body, 1, 0), Some((0, 7)));
    assert_eq!(run(locals, body, 2, 0), Some((2, 7)));
}

#[test]
fn registers_have_their_declared_width_and_start_at_zero() {
    let text = program(
        "bit<64> v; bit<8> i;",
        "",
        "Register<bit<64>, bit<8>>(4) wide; Register<bit<48>, bit<8>>(4) odd;",
        "bit<64> old = wide.read(hdr.h.i); wide.write(hdr.h.i, hdr.h.v);\n\
         odd.write(hdr.h.i, hdr.h.v[47:0] + 1); hdr.h.v = old + (bit<64>)odd.read(hdr.h.i);",
    );
    let mut b = Bench::new(&text);
    let packet = |v: u64, i: u8| [&v.to_be_bytes()[..], &[i]].concat();
    assert_eq!(b.passes(&packet(0xffff_ffff_ffff, 1)), packet(0, 1), "the sum wraps at 48 bits");
    assert_eq!(b.passes(&packet(0x1122_3344_5566_7788, 1)), packet(0xffff_ffff_ffff + 0x3344_5566_7789, 1));
    // An index out of range.
    assert_eq!(b.passes(&packet(5, 4)), packet(0, 4));
}

#[test]
fn odd_widths_wrap() {
    let text = program(
        "bit<4> n; bit<4> m; bit<24> c;",
        "",
        "",
        "if (hdr.h.n + 1 == 0) { hdr.h.m = 1; } hdr.h.c = hdr.h.c - 1;",
    );
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&[0xf0, 0, 0, 0]), [0xf1, 0xff, 0xff, 0xff]);
    assert_eq!(b.passes(&[0xe0, 0, 1, 0]), [0xe0, 0, 0, 0xff]);
}

#[test]
fn exit_in_an_action_ends_the_control() {
    let locals = "action leave(inout bit<8> x) { x = 9; exit; }";
    let body = "mark_to_drop(); if (hdr.h.a == 1) { leave(hdr.h.b); } mark_to_pass(); hdr.h.b = 3;";
    assert_eq!(run(locals, body, 1, 0), None);
    assert_eq!(run(locals, body, 2, 0), Some((2, 3)));
    // Leaving the action performs its copy-out.
    let body = "if (hdr.h.a == 1) { leave(hdr.h.b); } hdr.h.b = 3;";
    assert_eq!(run(locals, body, 1, 0), Some((1, 9)));
}

#[test]
fn return_ends_only_its_own_callable() {
    let locals = "action a() { hdr.h.a = 5; return; }";
    assert_eq!(run(locals, "a(); hdr.h.b = 6;", 1, 0), Some((5, 6)));
    assert_eq!(run("", "if (hdr.h.a == 1) { return; } hdr.h.b = 6;", 1, 0), Some((1, 0)));
}

#[test]
fn packets_that_are_too_short_are_dropped() {
    let mut b = Bench::new(&program("bit<8> a; bit<48> b;", "", "", "hdr.h.a = 1;"));
    for len in 0..7 {
        b.drops(&vec![0; len]);
    }
    assert_eq!(b.passes(&[0; 7]), [1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn fields_at_the_end_are_read_within_the_header() {
    // 24 and 48 bits at the very end of the packet: the verifier would refuse a load beyond it.
    for (header, len, want) in [("bit<24> a;", 3, 2), ("bit<48> a;", 6, 5), ("bit<8> x; bit<48> a;", 7, 6)] {
        let mut b = Bench::new(&program(header, "", "", "hdr.h.a = hdr.h.a + 1;"));
        let out = b.passes(&vec![0; len]);
        assert_eq!(out.iter().position(|x| *x == 1), Some(want), "{header}");
    }
}

#[test]
fn parameters_may_have_any_name() {
    let text = program("bit<8> a;", "bit<8> x;", "", "meta.x = hdr.h.a; hdr.h.a = meta.x + 1;")
        .replace("meta.", "packet.")
        .replace("meta,", "packet,")
        .replace("meta_t meta", "meta_t packet")
        .replace("std)", "meta)");
    assert_eq!(Bench::new(&text).passes(&[4]), [5]);
}

#[test]
fn lpm_matches_the_longest_prefix() {
    let locals = "action set(bit<8> v) { hdr.h.r = v; }\n\
        table t { key = { hdr.h.k : lpm; } actions = { set; NoAction; }\n\
        const entries = { 0x0a000000 &&& 0xff000000 : set(1); 0x0a010000 &&& 0xffff0000 : set(2); \
        0x0a010203 : set(3); }\n\
        const default_action = NoAction; }";
    let mut b = Bench::new(&program("bit<32> k; bit<8> r;", "", locals, "t.apply();"));
    for (k, want) in [(0x0a00_0001u32, 1), (0x0a01_ffff, 2), (0x0a01_0203, 3), (0x0b00_0000, 99)] {
        let p = [&k.to_be_bytes()[..], &[99]].concat();
        assert_eq!(b.passes(&p)[4], want, "{k:#x}");
    }
}

#[test]
fn parameters_are_copied_in_and_out() {
    let locals = "action twist(inout bit<8> x, in bit<8> y) { x = x + 1; hdr.h.b = y; x = x + y; }";
    // While the action runs, x is not a: b gets the old a, and a gets the final x.
    assert_eq!(run(locals, "twist(hdr.h.a, hdr.h.a);", 10, 0), Some((21, 10)));
    let locals = "control inner(inout bit<8> x, out bit<8> y) { apply { y = x; x = 1; if (y == 4) { return; \
        } x = 2; } }";
    let text = program("bit<8> a; bit<8> b;", "", "inner() i;", "i.apply(hdr.h.a, hdr.h.b);");
    let text = text.replace("control pipe", &format!("{locals}\ncontrol pipe"));
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&[4, 0]), [1, 4]);
    assert_eq!(b.passes(&[5, 0]), [2, 5]);
}

#[test]
fn only_the_needed_operands_are_evaluated() {
    let text = "bit<8> twice(in bit<8> x) { return x * 2; }";
    let body =
        "bool b = hdr.h.a != 0 && 100 / hdr.h.a > 10 || hdr.h.b == 1; hdr.h.b = b ? twice(hdr.h.a) : 0;";
    let p = program("bit<8> a; bit<8> b;", "", "", body);
    let p = p.replace("control pipe", &format!("{text}\ncontrol pipe"));
    let mut b = Bench::new(&p);
    assert_eq!(b.passes(&[5, 0]), [5, 10]);
    assert_eq!(b.passes(&[50, 0]), [50, 0]);
    assert_eq!(b.passes(&[0, 1]), [0, 0]);
    assert_eq!(b.passes(&[50, 1]), [50, 100]);
}

#[test]
fn assignments_to_slices_keep_the_other_bits() {
    let mut b = Bench::new(&program(
        "bit<16> a; bit<128> w;",
        "",
        "",
        "hdr.h.a[11:4] = 8w0xab; hdr.h.w[71:56] = 16w0xbeef;",
    ));
    let out = b.passes(&[0xff; 18]);
    assert_eq!(out[..2], [0xfa, 0xbf]);
    assert_eq!(out[2..], [&[0xff; 7][..], &[0xbe, 0xef], &[0xff; 7]].concat());
}

#[test]
fn tables_report_hit_miss_and_action() {
    let locals = "action set(bit<8> v) { hdr.h.b = v; } action other() { hdr.h.b = 77; }\n\
        table t { key = { hdr.h.a : exact; } actions = { set; other; NoAction; } default_action = NoAction; \
        size = 8; }";
    let body = "switch (t.apply().action_run) { set: { hdr.h.b = hdr.h.b + 1; }\n\
                    other: { hdr.h.a = 1; } default: { hdr.h.a = 2; } }";
    let mut b = Bench::new(&program("bit<8> a; bit<8> b;", "", locals, body));
    assert_eq!(b.passes(&[9, 0]), [2, 0]);
    b.set_map("pipe_t", &[9], &[0, 0, 0, 0, 40, 0, 0, 0]);
    assert_eq!(b.passes(&[9, 0]), [9, 41]);
    b.set_map("pipe_t", &[9], &[1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.passes(&[9, 0]), [1, 77]);
    // An invalid action number has no effect.
    b.set_map("pipe_t", &[9], &[200, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.passes(&[9, 0]), [2, 0]);
    let body = "if (t.apply().hit) { hdr.h.a = 1; } else { hdr.h.a = 2; }";
    let mut b = Bench::new(&program("bit<8> a; bit<8> b;", "", locals, body));
    assert_eq!(b.passes(&[9, 5]), [2, 5]);
    b.set_map("pipe_t", &[9], &[2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.passes(&[9, 5]), [1, 5]);
}

#[test]
fn large_constant_tables_become_maps_with_entries() {
    let entries: String = (0..40).map(|i| format!("({i}, {}) : set({});\n", 1000 + i, 2 * i)).collect();
    let locals = format!(
        "action set(bit<8> v) {{ hdr.h.r = v; }}\n\
         table t {{ key = {{ hdr.h.a : exact; hdr.h.b : exact; }} actions = {{ set; }}\n\
         const entries = {{ {entries} }} const default_action = set(255); }}"
    );
    let mut b = Bench::new(&program("bit<12> a; bit<4> x; bit<16> b; bit<8> r;", "", &locals, "t.apply();"));
    assert_eq!(b.compiled.facts.maps[0].initial_entries, 40);
    for i in 0u16..40 {
        let p = [(i << 4).to_be_bytes(), (1000 + i).to_be_bytes()].concat();
        assert_eq!(b.passes(&[&p[..], &[0]].concat())[4], 2 * i as u8);
        let p = [(i << 4).to_be_bytes(), (1001 + i).to_be_bytes()].concat();
        assert_eq!(b.passes(&[&p[..], &[0]].concat())[4], 255);
    }
}

#[test]
fn wide_keys_and_data() {
    let locals = "action set(bit<128> v, bit<1> f) { hdr.h.w = v; hdr.h.f = f; }\n\
        table t { key = { hdr.h.w : exact; } actions = { set; NoAction; } const default_action = NoAction; \
        size = 4; }";
    let mut b = Bench::new(&program("bit<128> w; bit<1> f; bit<7> g;", "", locals, "t.apply();"));
    let t = &b.compiled.facts.tables[0];
    assert_eq!((t.key_size, t.value_size), (16, 32));
    let (v, f) = (&t.actions[0].params[0], &t.actions[0].params[1]);
    assert_eq!((v.offset, v.bytes, f.offset, f.bytes), (8, 16, 24, 1));
    let key: Vec<u8> = (1..17).collect();
    let mut value = vec![0; 32];
    value[8..24].copy_from_slice(&(100..116).collect::<Vec<u8>>());
    value[24] = 1;
    b.set_map("pipe_t", &key, &value);
    let out = b.passes(&[&key[..], &[0]].concat());
    let want: Vec<u8> = (100..116).rev().chain([0x80]).collect();
    assert_eq!(out, want);
}

#[test]
fn switch_on_values_and_enums() {
    let text = program(
        "bit<8> a; bit<8> b;",
        "",
        "",
        "switch (hdr.h.a) { 1: 2: { hdr.h.b = 10; } 3: { hdr.h.b = 20; } default: { hdr.h.b = 30; } }\n\
         Kind k = hdr.h.a == 1 ? Kind.One : Kind.Two; if (k == Kind.One) { hdr.h.b = hdr.h.b + 1; }",
    )
    .replace("control pipe", "enum Kind { One, Two }\ncontrol pipe");
    let mut b = Bench::new(&text);
    for (a, want) in [(1, 11), (2, 10), (3, 20), (4, 30)] {
        assert_eq!(b.passes(&[a, 0]), [a, want]);
    }
}

#[test]
fn structs_tuples_and_headers_are_compared_and_copied() {
    let text = program(
        "bit<8> a; bit<8> b;",
        "bit<8> x; bit<8> y;",
        "",
        "meta = { x = hdr.h.a, y = 2 }; meta_t m = meta; tuple<bit<8>, bit<8>> t = { m.x, m.y };\n\
         h_t copy = hdr.h; copy.b = 5; if (t == { 1, 2 } && copy != hdr.h) { hdr.h.b = t[1] + copy.b; }",
    );
    let mut b = Bench::new(&text);
    assert_eq!(b.passes(&[1, 9]), [1, 7]);
    assert_eq!(b.passes(&[2, 9]), [2, 9]);
    assert_eq!(b.passes(&[1, 5]), [1, 5]);
}

#[test]
fn lookup3_matches_the_published_vectors() {
    // Test vectors of Bob Jenkins' lookup3.c.
    let text = b"Four score and seven years ago";
    let mut bench = Bench::new(&program(
        "bit<80> a; bit<96> b; bit<64> c; bit<32> r;",
        "",
        "",
        "hash(hdr.h.r, HashAlgorithm.lookup3, { hdr.h.a, hdr.h.b, hdr.h.c });",
    ));
    let out = bench.passes(&[&text[..], &[0; 4]].concat());
    assert_eq!(out[30..], 0x1777_0551_u32.to_be_bytes());
}

#[test]
fn controls_are_applied_by_their_type() {
    let inner = "control twice(inout bit<8> x) { Register<bit<8>, bit<32>>(1) n;\n\
        apply { n.write(0, n.read(0) + 1); x = x + n.read(0); } }\n\
        control other(inout bit<8> x) { apply { twice.apply(x); } }";
    let text = program("bit<8> a; bit<8> b;", "", "", "twice.apply(hdr.h.a); other.apply(hdr.h.b);");
    let mut b = Bench::new(&text.replace("control pipe", &format!("{inner}\ncontrol pipe")));
    // Each scope has its own instance.
    assert_eq!(b.compiled.facts.maps.len(), 2);
    assert_eq!(b.passes(&[10, 20]), [11, 21]);
    assert_eq!(b.passes(&[10, 20]), [12, 22]);
}

#[test]
fn more_values_than_registers_are_kept() {
    let fields: String = (0..24).map(|i| format!("bit<16> f{i}; ")).collect();
    // All values are read before the call, and permuted and mixed after it.
    let reads: String = (0..24).map(|i| format!("bit<16> v{i} = hdr.h.f{i} * {};\n", 2 * i + 1)).collect();
    let writes: String = (0..24)
        .map(|i| format!("hdr.h.f{i} = v{} - v{} + (bit<16>)(now >> 47);\n", 23 - i, (i * 7) % 24))
        .collect();
    let mut b = Bench::new(&program(
        &fields,
        "",
        "",
        &format!("{reads} bit<48> now = ubpf_time_get_ns();\n{writes}"),
    ));
    let packet: Vec<u8> = (0..48).map(|i| (i * 37 + 11) as u8).collect();
    let v: Vec<u16> = (0..24)
        .map(|i| u16::from_be_bytes([packet[2 * i], packet[2 * i + 1]]).wrapping_mul(2 * i as u16 + 1))
        .collect();
    let want: Vec<u8> = (0..24).flat_map(|i| v[23 - i].wrapping_sub(v[(i * 7) % 24]).to_be_bytes()).collect();
    assert!(b.compiled.asm.contains("(r10 -"), "nothing went to the stack");
    assert_eq!(b.passes(&packet), want);
}

#[test]
fn more_values_than_the_stack_holds_are_kept() {
    let fields: String = (0..80).map(|i| format!("bit<8> f{i}; ")).collect();
    let reads: String = (0..80).map(|i| format!("bit<8> v{i} = hdr.h.f{i} * {};\n", 2 * i + 1)).collect();
    // Some values change only on one path, and conditions are spilled too.
    let writes: String = (0..80)
        .map(|i| format!("hdr.h.f{i} = v{} - v{} + (bit<8>)(now >> 47);\n", 79 - i, (i * 7) % 80))
        .collect();
    let body = format!(
        "{reads} bool big = hdr.h.f0 > 100; if (hdr.h.f1 > 100) {{ v3 = v4; v5 = v3; v7 = 9; }}\n\
         bit<48> now = ubpf_time_get_ns();\n{writes} if (big) {{ hdr.h.f2 = 1; }}"
    );
    let mut b = Bench::new(&program(&fields, "", "", &body));
    assert!(b.compiled.facts.maps.iter().any(|m| m.name == "spill"), "everything fitted the stack");
    for seed in [11u32, 90, 200] {
        let packet: Vec<u8> = (0..80).map(|i| (i * 37 + seed) as u8).collect();
        let mut v: Vec<u8> = (0..80).map(|i| packet[i].wrapping_mul((2 * i + 1) as u8)).collect();
        if packet[1] > 100 {
            (v[3], v[5], v[7]) = (v[4], v[4], 9);
        }
        let mut want: Vec<u8> = (0..80).map(|i| v[79 - i].wrapping_sub(v[(i * 7) % 80])).collect();
        if packet[0] > 100 {
            want[2] = 1;
        }
        assert_eq!(b.passes(&packet), want);
    }
}

#[test]
fn zero_width_values_are_harmless() {
    let body = "bit<0> z = 0; z = z + z * z; z = z << 3; z = ~z; if (z == 0 && !(z < z)) { hdr.h.a = \
        (bit<8>)(z ++ 8w7); }";
    let mut b = Bench::new(&program("bit<8> a; bit<0> e;", "bit<0> x;", "", body));
    assert_eq!(b.passes(&[1]), [7]);
}

#[test]
fn lookahead_and_advance() {
    let text = program("bit<8> a; bit<8> b;", "", "", "hdr.h.b = meta.n;")
        .replace("struct meta_t {", "struct meta_t { bit<8> n;");
    let text = text.replace(
        "state start { p.extract(hdr.h); transition accept; }",
        "state start { bit<24> x = p.lookahead<bit<24>>(); meta.n = x[7:0]; p.advance((bit<32>)x[19:16] * \
            8); p.extract(hdr.h);\n\
         transition accept; }",
    );
    let mut b = Bench::new(&text);
    // Skipped bytes are not emitted.
    let long: Vec<u8> = (2..30).collect();
    assert_eq!(b.passes(&long), [&[4, 4][..], &long[4..]].concat());
    b.drops(&[15, 0, 0, 0]);
    b.drops(&[0, 0]);
}

#[test]
fn calls_of_a_function_in_its_own_arguments_are_separate() {
    let f = "bit<8> minus(in bit<8> x, in bit<8> y) { return x - y; }\ncontrol pipe";
    let body = "hdr.h.a = minus(hdr.h.a, minus(hdr.h.b, 1));";
    let mut b = Bench::new(&program("bit<8> a; bit<8> b;", "", "", body).replace("control pipe", f));
    assert_eq!(b.passes(&[100, 30]), [71, 30]);
}

#[test]
fn constants_of_new_types_have_their_values() {
    let types =
        "type bit<8> T;\nconst T NONE = 0;\nconst T FIVE = (T)5;\nconst bit<8> PLAIN = (bit<8>)FIVE;\n";
    let locals = "T v = FIVE; action set(T x) { v = x; }
        table t { key = { v : exact; } actions = { set; } const default_action = set(NONE);
                  const entries = { FIVE : set((T)9); } }";
    let body = "if (hdr.h.b == 1) { v = NONE; } t.apply();
        hdr.h.a = (bit<8>)v; if (v == NONE) { hdr.h.b = PLAIN; }";
    let mut bench = Bench::new(&program("bit<8> a; bit<8> b;", "", locals, body).replacen(
        "header",
        &format!("{types}header"),
        1,
    ));
    assert_eq!(bench.passes(&[0, 0]), [9, 0]);
    assert_eq!(bench.passes(&[0, 1]), [0, 5]);
}
