//! Machine code in addresses that were set aside. A test of its own, since it concerns the whole process.

use p4shield_bpf::asm::assemble;
use p4shield_bpf::{CODE_AREA, CODE_STARTS, EngineOptions, LoadError, Program, Verified, reserve_code_area};

/// Returns start and length of the executable memory that belongs to no file.
fn code() -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let hex = |s: &str| usize::from_str_radix(s, 16).expect("hexadecimal");
    let lines = maps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let code = lines.filter(|words| words[1].contains('x') && words.len() == 5);
    code.map(|words| words[0].split_once('-').expect("a range"))
        .map(|(from, to)| (hex(from), hex(to) - hex(from)))
        .collect()
}

#[test]
fn code_lies_in_the_area_and_its_pages_are_reused() {
    reserve_code_area().expect("the addresses are free");
    assert!(reserve_code_area().is_err(), "they are in use");
    let long =
        assemble(&format!("mov r0, 1\n{}exit", "mul r0, 3\nadd r0, r1\n".repeat(2000))).expect("right");
    // SAFETY: the program accesses no memory.
    let of_pages = Program::load(&unsafe { Verified::assume(long) }, &EngineOptions::default());
    assert!(code().iter().any(|(_, len)| *len > rustix::param::page_size()), "it takes several pages");
    drop(of_pages.expect("there is room"));
    let linked = assemble("mov r0, 1\nexit").expect("right");
    // SAFETY: the program accesses no memory.
    let load = || Program::load(&unsafe { Verified::assume(linked.clone()) }, &EngineOptions::default());
    let pages = CODE_STARTS.len() / rustix::param::page_size();
    let mut held: Vec<_> = (0..pages).map(|_| load().expect("there is room")).collect();
    let found = code();
    assert!(found.iter().all(|(at, len)| *at >= CODE_AREA.start && at + len <= CODE_AREA.end), "{found:x?}");
    assert_eq!(found.iter().map(|(_, len)| len).sum::<usize>(), CODE_STARTS.len());
    assert!(matches!(load(), Err(LoadError::Jit(_))), "the area is full");
    drop(held.drain(pages / 2..));
    held.push(load().expect("pages are free again"));
    held.clear();
    assert_eq!(code(), []);
}
