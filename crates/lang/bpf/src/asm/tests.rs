use super::*;

#[test]
fn displayed_instructions_are_read_back() {
    let text = "
        mov r0, -5
        mov32 %r1, 0xffffffff
        add r1, r0
        neg32 r3
        sdiv r1, 3
        smod32 r1, r2
        movsx832 r1, r2
        movsx3264 r1, r2
        le16 r1
        be64 r2
        bswap32 r3
        lddw r4, 0x1122334455667788
        ldxsh r1, [r10-2]
        ldxdw r1, [r2]
        stb [r10-1], 0x80
        stxdw [r10-8], r1
        lock fetch xor32 [r1+4], r2
        lock cmpxchg [r1-4], r2
        jsle32 r1, -1, +2
        jset r1, r2, -1
        ja +0
        call 1000
        exit";
    let first = assemble(text).expect("valid instructions");
    let mut slot = 0;
    let mut again = String::new();
    while slot < first.insns.len() {
        again += &first.text(slot);
        again += "\n";
        slot += 1 + usize::from(first.insns[slot].is_wide());
    }
    assert_eq!(assemble(&again).expect("displayed text").insns, first.insns, "{again}");
}

#[test]
fn functions_and_maps_are_found() {
    let linked = assemble(
        ".map t hash 4 8 16
        start: lddw r1, map t
        call local twice
        exit
        twice: mov r0, 2
        exit",
    )
    .expect("right");
    let names: Vec<_> = linked.subprograms.iter().map(|s| (s.name.as_str(), s.start, s.end)).collect();
    assert_eq!(names, [("start", 0, 4), ("twice", 4, 6)]);
    assert_eq!(linked.maps[0].name, "t");
    assert_eq!(linked.insns[0].map_reference(), Some(0));
    assert_eq!(crate::check::check(&linked), Ok(()));
}

#[test]
fn errors_are_reported_with_their_line() {
    let cases = [
        ("mov r0, 1\nmov r11, 2", 2, "r0 to r10"),
        ("\n\nfly r1", 3, "not an instruction"),
        ("ja nowhere", 1, "label nowhere is not defined"),
        ("a: exit\na: exit", 2, "twice"),
        ("mov r0, 0x100000000", 1, "32 bits"),
        ("lddw r1, map m", 1, "map m is not declared"),
        ("ldxw r1, [r2+40000]", 1, "16 bits"),
        (".map m hash 4", 1, ".map NAME"),
        ("call r1", 1, "helper number"),
    ];
    for (text, line, what) in cases {
        let e = assemble(text).unwrap_err();
        assert_eq!(e.line, line, "{e}");
        assert!(e.reason.contains(what), "{e}");
    }
}

/// Every line of the tests above with a few characters changed is refused or assembled, without a panic.
#[test]
fn damaged_text_never_panics() {
    let text = include_str!("tests.rs");
    let mut state = 1u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % n
    };
    let spare: Vec<char> = "r0123456789[]+-,:x%.#; mapexitlock".chars().collect();
    for _ in 0..200 {
        for line in text.lines() {
            let mut line: Vec<char> = line.chars().filter(|c| *c != '"').collect();
            for _ in 0..random(3) {
                if !line.is_empty() {
                    let at = random(line.len());
                    line[at] = spare[random(spare.len())];
                }
            }
            let line: String = line.into_iter().collect();
            if let Ok(linked) = assemble(line.trim()) {
                let _ = crate::check::check(&linked);
            }
        }
    }
}
