//! The evaluator and the compiled program agree: on our example programs, on the regression programs, and
//! on random programs.

use super::calls::Calls;
use super::v1model::{GROUPS, INPUT, SESSIONS};
use super::{Machine, Outcome, generate};

use crate::{Included, Options, Placement, Resolver};
use p4shield_abi::Verdict;
use p4shield_abi::division::destination;
use p4shield_abi::info::{InfoStatus, Snapshot, field};
use p4shield_bpf::verify::{Cache, Limits, Report, verify};
use p4shield_bpf::{EngineOptions, Entry, Meta, Mode, Object, Packet, Program, RunResult, VmInfo, link};
use p4shield_traffic::{self as traffic, Copy, Event, Loss, Ready, Run, Session, Traffic};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::path::{Path, PathBuf};

/// In-VM information that the programs read: functions, fields and values.
const INFORMATION: &[(&str, u32, u64)] = &[
    ("get_tcp_mem_used", field::TCP_MEM_USED, 5_000),
    ("get_tcp_mem_threshold", field::TCP_MEM_THRESHOLD, 4_000),
    ("get_tcp_mem", field::TCP_MEM, 4_000 << 32 | 5_000),
    ("get_rx_utilisation", field::INTERFACE_BASE + field::INTERFACE_RX_UTILISATION, 9_100),
    ("get_app_value", field::APP_BASE, 1),
];

struct Folder(PathBuf);

impl Resolver for Folder {
    fn resolve(&self, path: &str, _: bool, _: &str) -> Option<Included> {
        let text = std::fs::read_to_string(self.0.join(path)).ok()?;
        Some(Included { name: path.to_owned(), text })
    }
}

/// The compiled program on the interpreter.
struct Engine {
    program: Program,
    packet: Packet,
    info: VmInfo,
    ports: bool,
    traffic: Traffic,
    events: Vec<Event>,
    /// The functions in a compartment, by number.
    placed: Vec<String>,
    /// Their calls so far.
    calls: usize,
}

/// The packets that leave.
struct Left<'a> {
    packets: Outcome,
    calls: Calls,
    ports: bool,
    events: &'a mut Vec<Event>,
}

impl traffic::Outcome for Left<'_> {
    fn end(&mut self, packet: &Packet, r: &RunResult) {
        assert_eq!(r.stopped, None);
        if r.verdict == Verdict::Pass {
            let mut bytes = packet.bytes().to_vec();
            bytes.truncate(r.total as usize);
            self.packets.push((bytes, self.ports.then(|| destination(r.output_port).0.into())));
        }
    }

    fn lose(&mut self, _: Loss) {}

    fn call(&mut self, ready: Ready<'_>) -> bool {
        self.calls.add(&ready);
        true
    }

    fn note(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// A traffic manager with the evaluator's groups and sessions.
fn traffic() -> Traffic {
    let mut traffic = Traffic::new();
    let small = |n: usize| u16::try_from(n).expect("a small number");
    for (group, copies) in GROUPS {
        let copy = |(port, replica): &(usize, usize)| Copy { port: small(*port), replica: small(*replica) };
        traffic.groups.set(small(*group), copies.iter().map(copy).collect()).expect("a group");
    }
    for (session, port, group) in SESSIONS {
        let target = Session { port: port.map(small), group: group.map(small) };
        traffic.sessions.set(small(*session), target).expect("a session");
    }
    traffic
}

/// The header copy of the engine; tests use shorter packets.
const COPY: usize = 512;

impl Engine {
    /// Verifies and loads a program. The proof for a random program takes a hundred times longer than its
    /// packets, so it is omitted for those: the interpreter checks every access.
    fn new(compiled: &crate::Compiled, proof: bool) -> Result<Self, String> {
        let object = Object::parse(&compiled.object).map_err(|e| e.to_string())?;
        let linked = link(&[object]).map_err(|e| e.to_string())?;
        let report = Report {
            instructions: compiled.facts.instructions,
            max_loop_count: 0,
            verifier: String::new(),
            elapsed: std::time::Duration::ZERO,
        };
        let verified = match proof {
            true => verify(linked, &Limits::default()),
            false => Cache::in_memory().verify(linked, &Limits::default(), |_| Ok(report)),
        };
        let (verified, _) = verified.map_err(|e| e.to_string())?;
        let options = EngineOptions { mode: Mode::Interpreter, ..EngineOptions::default() };
        let program = Program::load(&verified, &options).map_err(|e| e.to_string())?;
        let mut snapshot = Snapshot::default();
        INFORMATION.iter().for_each(|(_, f, v)| snapshot.set(*f, *v));
        let ports = compiled.facts.architecture == p4shield_tables::model::Architecture::V1model;
        let info = VmInfo::new(&snapshot, InfoStatus::Known);
        Ok(Self {
            program,
            packet: Packet::with_minimum(256, COPY, 0),
            info,
            ports,
            traffic: traffic(),
            events: Vec::new(),
            placed: compiled.facts.placed.clone(),
            calls: 0,
        })
    }

    fn run(&mut self, packet: &[u8]) -> Outcome {
        let meta = Meta { input_port: INPUT as u32, ..Meta::default() };
        self.packet.reset(packet, packet.len() as u32);
        let Self { program, packet: buffer, info, traffic, ports, events, placed, calls } = self;
        let mut left = Left { packets: Vec::new(), calls: Calls::default(), ports: *ports, events };
        let result = program.run(buffer, &meta, info);
        if left.ports && Traffic::asks(&result) {
            let mut run = Run { program, packet: buffer, meta: &meta, info };
            traffic.follow(&mut run, Entry::default(), packet, &result, &mut left);
            while let Some(call) = left.calls.answered(placed) {
                *calls += 1;
                traffic.answer(&mut run, call.ready(&meta), &mut left);
            }
        } else {
            traffic::Outcome::end(&mut left, buffer, &result);
        }
        left.packets
    }
}

/// The comparison of one program.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) packets: usize,
    /// The acts of the traffic manager.
    events: Vec<Event>,
    /// Calls of functions in a compartment.
    calls: usize,
    /// Reason why the evaluator skipped packets.
    pub(super) skipped: Vec<String>,
}

/// How a program is compiled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// True if the verifier proves it.
    pub(super) proof: bool,
    /// True if it records its runs, which must not change what it does.
    pub(super) trace: bool,
    /// True if functions with effects run in a compartment.
    pub(super) placed: bool,
}

/// Runs packets through the compiled program and the evaluator; the error describes a difference.
pub(super) fn compare(
    text: &str,
    resolver: &dyn Resolver,
    packets: &[Vec<u8>],
    Form { proof, trace, placed }: Form,
) -> Result<Compared, String> {
    let placement = if placed { Placement::Extern } else { Placement::Inline };
    let options = Options { trace, placement, ..Options::default() };
    let marked = if placed { &generate::placed(text) } else { text };
    let compiled = match crate::compile("test.p4", marked, resolver, &options) {
        Ok(c) => c,
        Err(e) if e.plain().iter().filter(|d| d.error).all(|d| d.code.starts_with("E08")) => {
            let skipped = vec![format!("not supported: {e}")];
            return Ok(Compared { skipped, ..Compared::default() });
        }
        Err(e) => return Err(format!("refused: {e}")),
    };
    let (front, ..) = crate::front_end("test.p4", text, resolver, &options);
    let front = front.ok_or("the front end refuses what the compiler accepts")?;
    if !compiled.facts.externs.is_empty() {
        return Ok(Compared { skipped: vec!["own functions".to_owned()], ..Compared::default() });
    }
    let mut engine = Engine::new(&compiled, proof)?;
    let information = INFORMATION.iter().map(|(n, _, v)| (*n, *v)).chain([("vm_info_known", 1)]).collect();
    let mut machine = Machine::new(&front.hir, information);
    let mut result = Compared::default();
    for p in packets {
        let mut got = engine.run(p);
        let mut wanted = machine.run(p);
        if placed {
            // A copy that waits for an answer leaves later than the next one.
            got.sort();
            wanted = wanted.map(sorted);
        }
        match wanted {
            Ok(wanted) if wanted == got => result.packets += 1,
            Ok(wanted) => {
                return Err(format!("packet {p:02x?}\n  evaluator {wanted:02x?}\n  compiled  {got:02x?}"));
            }
            // State may differ from now on.
            Err(why) => {
                result.skipped.push(why);
                break;
            }
        }
    }
    (result.events, result.calls) = (engine.events, engine.calls);
    Ok(result)
}

fn sorted(mut packets: Outcome) -> Outcome {
    packets.sort();
    packets
}

/// Returns packets that reach the states of usual parsers, mutated and cut.
fn packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let ip = "450000280001000040060000c0a800010a0000023039005000000001000000025002010000000000";
    let seeds: Vec<Vec<u8>> =
        [format!("02000000000102000000000208 00{ip}"), format!("0200000000010200000000028100006408 00{ip}")]
            .iter()
            .map(|s| unhex(s))
            .collect();
    let mutated =
        (prop::sample::select(seeds), prop::collection::vec((0..60usize, any::<u8>()), 0..4), 0..70usize)
            .prop_map(|(mut p, changes, cut)| {
                for (at, v) in changes {
                    if let Some(b) = p.get_mut(at) {
                        *b = v;
                    }
                }
                p.truncate(cut.max(if cut % 2 == 0 { 70 } else { 0 }));
                p
            });
    prop::collection::vec(mutated, 16)
}

fn unhex(s: &str) -> Vec<u8> {
    let digits: Vec<u32> = s.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|c| (c[0] * 16 + c[1]) as u8).collect()
}

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the programs of a folder with their names.
fn programs(path: &str) -> Vec<(String, String)> {
    let all = std::fs::read_dir(folder(path)).expect("a folder").map(|e| e.expect("an entry").path());
    let mut all: Vec<PathBuf> = all.filter(|p| p.extension().is_some_and(|e| e == "p4")).collect();
    all.sort();
    let named = |p: &PathBuf| (p.display().to_string(), std::fs::read_to_string(p).expect("a program"));
    all.iter().map(named).collect()
}

#[test]
fn examples_behave_as_the_evaluator_expects() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut packets =
        |n| (0..n).flat_map(|_| packets().new_tree(&mut runner).expect("packets").current()).collect();
    let all = programs("../../../examples/programs");
    for (name, text) in &all {
        let packets: Vec<Vec<u8>> = packets(20);
        for trace in [false, true] {
            let form = Form { proof: true, trace, placed: false };
            let c =
                compare(text, &crate::NoIncludes, &packets, form).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!((c.packets, &c.skipped), (320, &Vec::new()), "{name}, {form:?}");
        }
    }
    assert!(all.len() >= 8, "{all:?}");
}

/// The packets of a script, whatever its commands do to tables.
fn packets_of(script: &str) -> Vec<Vec<u8>> {
    let packet = |l: &str| l.strip_prefix("packet ").and_then(|l| l.split_once(' ')).map(|(_, p)| unhex(p));
    script.lines().filter_map(packet).collect()
}

#[test]
fn regression_programs_behave_as_the_evaluator_expects() {
    let path = "../stf/tests/programs";
    let (mut compared, mut skipped) = (0, Vec::new());
    for (name, text) in programs(path) {
        let Ok(script) = std::fs::read_to_string(name.replace(".p4", ".stf")) else { continue };
        let packets = packets_of(&script);
        for trace in [false, true] {
            let form = Form { proof: true, trace, placed: false };
            let c = compare(&text, &Folder(folder(path)), &packets, form);
            let c = c.unwrap_or_else(|e| panic!("{name}, {form:?}: {e}"));
            compared += c.packets;
            skipped.extend(c.skipped.iter().map(|why| format!("{name}, {form:?}: {why}")));
        }
    }
    println!("{compared} packets; skipped: {skipped:#?}");
    assert!(compared >= 300, "{compared}: {skipped:#?}");
}

pub(super) fn random_packets(tape: &[u8]) -> Vec<Vec<u8>> {
    // Cut at every length, so that some extraction fails, and with first bytes that the parser selects on.
    let mut all = Vec::new();
    for (i, first) in [0u8, 1, 2, 3, 5, 0x40, 0x80, 0x81, 0xff, 9, 10, 7].iter().enumerate() {
        let mut p: Vec<u8> =
            tape.iter().cycle().skip(i * 7).take(90).map(|b| b ^ (i as u8).wrapping_mul(29)).collect();
        p[0] = *first;
        all.push(p.clone());
        p.truncate(i * 3 + usize::from(tape[i % tape.len()] % 40));
        all.push(p);
    }
    all
}

#[test]
fn random_programs_ask_for_everything() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tapes = prop::collection::vec(any::<u8>(), 600..1200);
    let mut all: Vec<Event> = Vec::new();
    for _ in 0..60 {
        let tape = tapes.new_tree(&mut runner).expect("a tape").current();
        let form = Form { proof: false, trace: tape[0] % 2 == 1, placed: false };
        let compared = compare(&generate::program(&tape), &crate::NoIncludes, &random_packets(&tape), form);
        all.extend(compared.unwrap_or_else(|e| panic!("{e}")).events);
    }
    let count = |event| all.iter().filter(|e| **e == event).count();
    let counts = [Event::Replicated, Event::Copied, Event::Resubmitted, Event::Recirculated].map(count);
    assert!(counts.iter().all(|n| *n >= 20), "{counts:?}");
}

#[test]
fn random_programs_call_functions_in_a_compartment() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tapes = prop::collection::vec(any::<u8>(), 600..1200);
    let (mut calling, mut calls, mut skipped) = (0, 0, Vec::new());
    for _ in 0..12 {
        let tape = tapes.new_tree(&mut runner).expect("a tape").current();
        let text = generate::in_any_order(&generate::program(&tape));
        let form = Form { proof: false, trace: tape[0] % 2 == 1, placed: true };
        let compared = compare(&text, &crate::NoIncludes, &random_packets(&tape), form);
        let compared = compared.unwrap_or_else(|e| panic!("{e}"));
        calling += usize::from(compared.calls > 0);
        calls += compared.calls;
        skipped.extend(compared.skipped);
    }
    println!("{calling} programs make {calls} calls; skipped: {skipped:#?}");
    assert!(calling >= 10 && calls >= 1_000, "{calling} programs make {calls} calls");
}

/// Number of random programs; `PROPTEST_CASES` sets another.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .map_or(p4shield_need::extent(25, 500), |n| n.parse().expect("a number of cases"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_behave_as_the_evaluator_expects(
        tape in prop::collection::vec(any::<u8>(), 0..1200),
        bytes in prop::collection::vec(any::<u8>(), 40..90),
        trace: bool,
        placed: bool,
    ) {
        let text = generate::program(&tape);
        let text = if placed { generate::in_any_order(&text) } else { text };
        let form = Form { proof: false, trace, placed };
        let compared = compare(&text, &crate::NoIncludes, &random_packets(&bytes), form);
        if let Ok(c) = &compared && std::env::var("P4SHIELD_SHOW").is_ok() {
            println!("{} {:?}", c.packets, c.skipped.iter().map(|s| s.lines().next()).collect::<Vec<_>>());
        }
        prop_assert!(compared.is_ok(), "{}\n{}", text, compared.unwrap_err());
    }
}
