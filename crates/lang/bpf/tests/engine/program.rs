//! Loaded programs: verdicts, in-VM information, resizing, maps, limits and freed memory.

use p4shield_abi::Verdict;
use p4shield_abi::info::{InfoStatus, Snapshot, field};
use p4shield_bpf::asm::assemble;
use p4shield_bpf::linked::Entry;
use p4shield_bpf::maps::{MapError, MapsError, UpdateFlag};
use p4shield_bpf::{
    EngineOptions, Linked, LoadError, Meta, Mode, Packet, Program, RunResult, Stop, Verified, VmInfo,
};

const MODES: [Mode; 2] = [Mode::Interpreter, Mode::Jit];

fn options(mode: Mode) -> EngineOptions {
    EngineOptions { mode, ..EngineOptions::default() }
}

fn load_linked(linked: Linked, options: &EngineOptions) -> Result<Program, LoadError> {
    // SAFETY: in JIT mode, the programs of this file only access their own memory.
    Program::load(&unsafe { Verified::assume(linked) }, options)
}

fn load(text: &str, mode: Mode) -> Program {
    let linked = assemble(text).unwrap_or_else(|e| panic!("{e}"));
    load_linked(linked, &options(mode)).unwrap_or_else(|e| panic!("{e}"))
}

fn packet() -> Packet {
    let mut packet = Packet::new(128, 128);
    packet.reset(&[0x11; 60], 1500);
    packet
}

fn known() -> VmInfo {
    let mut snapshot = Snapshot::default();
    snapshot.set(field::TCP_MEM_USED, 10);
    snapshot.set(field::TCP_MEM_THRESHOLD, 20);
    snapshot.set(field::APP_BASE + 63, 1);
    VmInfo::new(&snapshot, InfoStatus::Known)
}

fn run(text: &str, mode: Mode, info: &VmInfo) -> RunResult {
    load(text, mode).run(&mut packet(), &Meta::default(), info)
}

/// Runs the program on both engines, which have to agree, and returns the result.
fn both(text: &str, info: &VmInfo) -> RunResult {
    let [a, b] = MODES.map(|mode| run(text, mode, info));
    assert_eq!(a, b, "{text}");
    b
}

#[test]
fn only_return_value_1_passes() {
    for (r0, verdict) in
        [("1", Verdict::Pass), ("0", Verdict::Drop), ("2", Verdict::Drop), ("-1", Verdict::Drop)]
    {
        assert_eq!(both(&format!("mov r0, {r0}\nexit"), &known()).verdict, verdict);
    }
    let upper = "lddw r0, 0x100000001\nexit";
    assert_eq!(both(upper, &known()).verdict, Verdict::Drop, "the upper half counts");
}

#[test]
fn the_context_holds_the_packet_metadata() {
    let meta = Meta { input_port: 1, direction: 1, vm: 7, timestamp_ns: 1 << 40 };
    let fields = [
        ("ldxw r0, [r1+16]", 1),
        ("ldxw r0, [r1+20]", 1500),
        ("ldxw r0, [r1+32]", 1),
        ("ldxw r0, [r1+36]", 7),
        ("ldxdw r0, [r1+40]", 1u64 << 40),
        ("ldxdw r0, [r1+8]\nldxdw r2, [r1]\nsub r0, r2", 60),
    ];
    for (load_field, expected) in fields {
        let text = format!(
            "{load_field}\nlddw r3, {expected:#x}\nmov r1, r0\nmov r0, 0\njne r1, r3, out\nmov r0, 1\nout: \
             exit"
        );
        for mode in MODES {
            let result = load(&text, mode).run(&mut packet(), &meta, &known());
            assert_eq!(result.verdict, Verdict::Pass, "{mode:?} {load_field}");
        }
    }
}

/// `field` comes from a constant, which the JIT inlines, or from memory.
fn reads(field: u32, expected: u64, inline: bool) -> String {
    let field =
        if inline { format!("mov r2, {field}") } else { format!("stw [r10-4], {field}\nldxw r2, [r10-4]") };
    format!(
        "{field}\ncall 1000\nmov r6, r0\nmov r0, 0\nlddw r1, {expected:#x}\njne r6, r1, out\nmov r0, \
         1\nout: exit"
    )
}

#[test]
fn in_vm_information_is_read_as_published() {
    let info = known();
    let fields = [
        (field::TCP_MEM, 20 << 32 | 10),
        (field::TCP_MEM_USED, 10),
        (field::TCP_MEM_THRESHOLD, 20),
        (field::APP_BASE + 63, 1),
    ];
    for (number, expected) in fields {
        for inline in [true, false] {
            let result = both(&reads(number, expected, inline), &info);
            assert_eq!((result.verdict, result.undecided), (Verdict::Pass, false), "{number} {inline}");
        }
    }
}

#[test]
fn unknown_information_drops_unless_checked() {
    let stale = VmInfo::new(&Snapshot::default(), InfoStatus::Stale);
    for inline in [true, false] {
        let read = reads(field::TCP_MEM, 0xffff_ffff, inline);
        let result = both(&read, &stale);
        assert_eq!((result.verdict, result.undecided), (Verdict::Drop, true));
        let result = both(&reads(999, 0, inline), &known());
        assert!(result.undecided, "a field that does not exist is never known");
        for (asks, answer) in [("call 1001", 2), ("mov r2, 0\ncall 1002", 0)] {
            let text = format!(
                "mov r6, r1\n{asks}\njne r0, {answer}, bad\nmov r1, r6\n{read}\nbad: mov r0, 0\nexit"
            );
            let result = both(&text, &stale);
            assert_eq!((result.verdict, result.undecided), (Verdict::Pass, false), "{asks}");
        }
    }
    let known_field = "mov r2, 1\ncall 1002\nexit";
    assert_eq!(both(known_field, &known()).verdict, Verdict::Pass);
    assert_eq!(both(known_field, &stale).verdict, Verdict::Drop);
}

#[test]
fn old_values_are_hidden_unless_known() {
    let mut snapshot = Snapshot::default();
    snapshot.set(field::TCP_MEM_USED, 10);
    for status in [InfoStatus::Missing, InfoStatus::Stale, InfoStatus::Forged, InfoStatus::Replayed] {
        let info = VmInfo::new(&snapshot, status);
        assert!(!info.is_known(field::TCP_MEM_USED));
        assert_eq!(info.value(field::TCP_MEM_USED), u64::MAX);
    }
}

#[test]
fn only_stores_into_the_packet_are_rewrites() {
    let cases = [
        ("ldxdw r2, [r1]\nstb [r2+13], 0x11", true),
        ("ldxdw r2, [r1]\nmov r3, 1\nlock add [r2+4], r3", true),
        ("ldxdw r2, [r1]\nmov r3, r10\nstxdw [r3-8], r2", false),
        ("stw [r1+28], 5", false),
        (
            ".map m array 4 8 1\nstw [r10-4], 0\nlddw r1, map m\nmov r2, r10\nadd r2, -4\ncall 1\njeq r0, \
             0, +1\nstdw [r0], 3",
            false,
        ),
        ("ldxdw r2, [r1]\nldxb r2, [r2+13]", false),
        ("ldxdw r1, [r1]\ncall local f\nja +2\nf: stb [r1], 1\nexit\nmov r0, 1", true),
    ];
    for (text, rewritten) in cases {
        // The last case has its function in the middle, so it is moved after the program.
        let text = match text.split_once("\nja +2\n") {
            Some((program, rest)) => {
                let function = rest.trim_end_matches("\nmov r0, 1");
                format!("{program}\nmov r0, 1\nexit\n{function}")
            }
            None => format!("{text}\nmov r0, 1\nexit"),
        };
        let result = both(&text, &known());
        assert_eq!((result.rewritten, result.verdict), (rewritten, Verdict::Pass), "{text}");
    }
}

#[test]
fn resized_packets_are_visible_to_the_program() {
    let grow = "mov r6, r1\nmov r2, -4\ncall 44\njne r0, 0, bad\nldxdw r2, [r6]\nstw [r2], 0x04030201
        ldxdw r3, [r6+8]\nsub r3, r2\njne r3, 64, bad\nldxw r3, [r6+20]\njne r3, 1504, bad\nmov r0, 1\nexit
        bad: mov r0, 0\nexit";
    for mode in MODES {
        let mut packet = packet();
        let result = load(grow, mode).run(&mut packet, &Meta::default(), &known());
        assert_eq!(result.verdict, Verdict::Pass, "{mode:?} {result:?}");
        assert!(result.rewritten);
        assert_eq!((result.start, result.len, result.total), (124, 64, 1504));
        assert_eq!(packet.bytes()[..5], [1, 2, 3, 4, 0x11]);
    }
    let refused = "mov r2, -129\ncall 44\njslt r0, 0, good\nmov r0, 0\nexit\ngood: mov r0, 1\nexit";
    let result = both(refused, &known());
    assert_eq!((result.verdict, result.rewritten, result.len), (Verdict::Pass, false, 60));
    let cut = "mov r2, -1460\ncall 65\nmov r0, 1\nexit";
    let result = both(cut, &known());
    assert_eq!((result.len, result.total, result.rewritten), (40, 40, true));
}

#[test]
fn endless_programs_are_stopped() {
    let loops = [
        "mov r0, 1\nagain: ja again\nexit",
        "mov r0, 1\nagain: add r0, 1\njne r0, 0, again\nexit",
        "mov r0, 1\nagain: ja32 next\nnext: mov r1, 1\nja again\nexit",
    ];
    for text in loops {
        let result = both(text, &known());
        assert_eq!((result.verdict, result.stopped), (Verdict::Drop, Some(Stop::Budget)), "{text}");
    }
    let recursive = "call local f\nmov r0, 1\nexit\nf: call local f\nexit";
    assert_eq!(both(recursive, &known()).stopped, Some(Stop::CallDepth));
    let nested = "call local f\nmov r0, 1\nexit\nf: mov r6, 0\nagain: add r6, 1\njne r6, 0, again\nexit";
    assert_eq!(both(nested, &known()).stopped, Some(Stop::Budget), "also in a function");
}

/// Calls are charged: eight levels of functions with ten calls each make 10^7 calls.
#[test]
fn calls_are_charged() {
    let mut text = "call local f1\nmov r0, 1\nexit\n".to_owned();
    for level in 1..8 {
        text += &format!("f{level}: mov r0, 0\n");
        if level < 7 {
            text += &format!("call local f{}\n", level + 1).repeat(10);
        }
        text += "exit\n";
    }
    assert_eq!(both(&text, &known()).stopped, Some(Stop::Budget));
}

#[test]
fn both_engines_charge_the_same_budget() {
    let text = "mov r0, 1\nmov r6, 0\nagain: add r6, 1\ncall local f\njlt r6, 20, again\nmov r0, 1\nexit
        f: mov r7, 0\nmore: add r7, 1\njlt r7, 3, more\nmov r0, 0\nexit";
    let stopped = |mode, budget| {
        let linked = assemble(text).expect("right");
        let mut program = load_linked(linked, &EngineOptions { budget, ..options(mode) }).expect("loads");
        program.run(&mut packet(), &Meta::default(), &known()).stopped
    };
    let enough = (8..1000).find(|&budget| stopped(Mode::Interpreter, budget).is_none()).expect("it ends");
    for budget in [8, 50, enough - 1, enough, enough + 1] {
        let expected = (budget < enough).then_some(Stop::Budget);
        assert_eq!(MODES.map(|mode| stopped(mode, budget)), [expected; 2], "{budget} of {enough}");
    }
    let linked = assemble(text).expect("right");
    let e = load_linked(linked, &EngineOptions { budget: 6, ..options(Mode::Jit) });
    assert!(matches!(e, Err(LoadError::Budget { slots: 7, budget: 6 })), "{e:?}");
}

#[test]
fn a_stop_ends_with_its_packet() {
    for mode in MODES {
        let mut program = load("ldxw r2, [r1+36]\nmov r0, 1\nagain: jeq r2, 1, again\nexit", mode);
        for vm in [1, 0, 1, 0] {
            let result = program.run(&mut packet(), &Meta { vm, ..Meta::default() }, &known());
            assert_eq!(result.stopped.is_some(), vm == 1, "{mode:?}");
        }
    }
}

/// The interpreter stops programs that the verifier would refuse, which makes it the reference.
#[test]
fn the_interpreter_checks_every_access() {
    let cases = [
        "ldxb r0, [r10+0]",
        "stb [r10-513], 1",
        "mov r2, 0\nldxdw r0, [r2]",
        "ldxdw r2, [r1]\nldxb r0, [r2+60]",
        "ldxdw r2, [r1]\nldxb r0, [r2-1]",
        "ldxdw r2, [r1]\nldxdw r3, [r2]\nadd r2, r3\nstb [r2], 0x41",
        "ldxdw r0, [r1+41]",
        "ldxdw r7, [r1]\nmov r2, 8\ncall 44\nldxb r0, [r7]",
        ".map m array 4 6 2\nstw [r10-4], 1\nlddw r1, map m\nmov r2, r10\nadd r2, -4\ncall 1\nldxdw r0, \
         [r0+8]",
    ];
    for text in cases {
        let result = run(&format!("{text}\nmov r0, 1\nexit"), Mode::Interpreter, &known());
        assert!(matches!(result.stopped, Some(Stop::Memory { .. })), "{text}: {result:?}");
    }
    for text in [
        "mov r1, 5\nmov r2, r10\ncall 1",
        ".map m hash 8 8 4\nlddw r1, map m\nmov r2, r10\nadd r2, -4\ncall 1",
    ] {
        let result = run(&format!("{text}\nmov r0, 1\nexit"), Mode::Interpreter, &known());
        assert!(matches!(result.stopped, Some(Stop::Argument { helper: 1, .. })), "{text}: {result:?}");
    }
}

#[test]
fn helpers_refuse_forged_map_handles() {
    let text = "lddw r1, 0x4d41500000000007\nmov r2, r10\nadd r2, -8\ncall 1\njne r0, 0, +1\nmov r0, 1\nexit";
    let result = run(text, Mode::Jit, &known());
    assert_eq!(result.verdict, Verdict::Pass, "the lookup finds nothing");
}

const COUNTER: &str = ".map counts hash 4 8 4
    ldxw r3, [r1+36]
    stxw [r10-4], r3
    stdw [r10-16], 1
    mov r6, r10
    add r6, -4
    lddw r1, map counts
    mov r2, r6
    call 1
    jeq r0, 0, new
    mov r1, 1
    lock add [r0], r1
    mov r0, 1
    exit
new:
    lddw r1, map counts
    mov r2, r6
    mov r3, r10
    add r3, -16
    mov r4, 1
    call 2
    jeq r0, 0, +2
    mov r0, 0
    exit
    mov r0, 1
    exit";

#[test]
fn programs_and_control_plane_share_maps() {
    for mode in MODES {
        let mut program = load(COUNTER, mode);
        let mut other = load(COUNTER, mode);
        let judge = |program: &mut Program, vm| {
            program.run(&mut packet(), &Meta { vm, ..Meta::default() }, &known()).verdict
        };
        for vm in [1, 1, 2, 3, 4, 1] {
            assert_eq!(judge(&mut program, vm), Verdict::Pass);
        }
        assert_eq!(judge(&mut program, 5), Verdict::Drop, "the table is full");
        let maps = program.maps_mut().expect("a map");
        let counts = maps.get_mut("counts").expect("by name");
        assert_eq!(counts.lookup(&1u32.to_ne_bytes()), Ok(3u64.to_ne_bytes().to_vec()));
        assert_eq!(counts.delete(&1u32.to_ne_bytes()), Ok(()));
        assert_eq!(counts.update(&2u32.to_ne_bytes(), &50u64.to_ne_bytes(), UpdateFlag::Exist), Ok(()));
        assert_eq!(
            counts.update(&9u32.to_ne_bytes(), &50u64.to_ne_bytes(), UpdateFlag::Exist),
            Err(MapError::NotFound)
        );
        assert_eq!(judge(&mut program, 5), Verdict::Pass);
        assert_eq!(judge(&mut program, 2), Verdict::Pass);
        let counts = program.maps().and_then(|m| m.get("counts")).expect("by name");
        assert_eq!(counts.lookup(&2u32.to_ne_bytes()), Ok(51u64.to_ne_bytes().to_vec()));
        assert_eq!(counts.iter().count(), 4);
        let others = other.maps_mut().and_then(|m| m.get_mut("counts")).expect("by name");
        assert_eq!(others.iter().count(), 0, "a program's maps are its own");
    }
}

#[test]
fn initial_entries_are_installed() {
    let mut linked = assemble(COUNTER).expect("right");
    let entry = |map, key: u32| Entry { map, key: key.to_ne_bytes().to_vec(), value: vec![7; 8] };
    linked.entries = vec![entry(0, 1), entry(0, 2)];
    let program = load_linked(linked.clone(), &options(Mode::Jit)).expect("they fit");
    assert_eq!(program.maps().and_then(|m| m.get("counts")).map(|m| m.iter().count()), Some(2));
    linked.entries.extend([entry(0, 3), entry(0, 4), entry(0, 5)]);
    let e = load_linked(linked.clone(), &options(Mode::Jit));
    assert!(
        matches!(e, Err(LoadError::Maps(MapsError::Entry { index: 4, source: MapError::Full, .. }))),
        "{e:?}"
    );
    linked.entries = vec![entry(1, 1)];
    assert!(matches!(
        load_linked(linked, &options(Mode::Jit)),
        Err(LoadError::Maps(MapsError::Entry { .. }))
    ));
}

#[test]
fn exceeded_limits_are_reported() {
    let linked = assemble(".map big array 4 4096 100000\nmov r0, 1\nexit").expect("right");
    let e = load_linked(linked, &options(Mode::Jit));
    assert!(matches!(e, Err(LoadError::Maps(MapsError::TooLarge { .. }))), "{e:?}");
    let linked = assemble("call 4242\nexit").expect("right");
    let e = load_linked(linked, &options(Mode::Jit));
    assert!(matches!(e, Err(LoadError::Helper { slot: 0, number: 4242 })), "{e:?}");
}

/// Returns the number of anonymous pages with these permissions. The kernel merges adjacent mappings.
fn pages(permissions: &str) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    let size = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    };
    let lines = maps.lines().filter(|l| l.contains(permissions) && l.split_whitespace().count() == 5);
    lines.filter_map(size).sum::<u64>() / rustix::param::page_size() as u64
}

/// Other tests of this process hold programs at the same time, so the test compares with bounds.
#[test]
fn code_is_never_writable_and_is_freed() {
    let held: Vec<_> = (0..200).map(|_| load(COUNTER, Mode::Jit)).collect();
    assert!(pages("r-xp") >= 200, "code has pages of its own");
    assert_eq!(pages("rwxp"), 0);
    drop(held);
    for _ in 0..3000 {
        drop(load(COUNTER, Mode::Jit));
    }
    assert!(pages("r-xp") < 100, "{} pages of code are left", pages("r-xp"));
}

#[test]
fn programs_move_between_threads() {
    let mut program = load(COUNTER, Mode::Jit);
    let verdict = std::thread::spawn(move || program.run(&mut packet(), &Meta::default(), &known()).verdict);
    assert_eq!(verdict.join().expect("no panic"), Verdict::Pass);
}

#[test]
fn time_and_random_numbers_change() {
    let text =
        "call 5\nmov r6, r0\ncall 5\njlt r0, r6, bad\njeq r6, 0, bad\ncall 7\nmov r6, r0\ncall 7\nmov r7, r0
        call 7\njne r0, r6, good\njne r0, r7, good\nbad: mov r0, 0\nexit\ngood: mov r0, 1\nexit";
    assert_eq!(both(text, &known()).verdict, Verdict::Pass);
}
