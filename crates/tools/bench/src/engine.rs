//! `p4shield-dev bench engine`: nanoseconds per packet, of whole programs and of one program's phases.
//!
//! The phases are those of figure 10 of the P4 Shield paper (parse, tables, information, decryption,
//! deparse); each measurement runs a program with one more phase. Each figure is the minimum of many rounds,
//! which excludes the machine's other load. As in the P4 VM, each run begins with copying the packet into the
//! private buffer.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use p4shield_abi::Verdict;
use p4shield_abi::info::{InfoStatus, Snapshot, field};
use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{EngineOptions, Meta, Mode, Object, Packet, Program, VmInfo, link};
use p4shield_p4::NoIncludes;
use p4shield_seal::{AgeLimit, Epoch, Identity, InfoOpener, InfoSealer, Now, TenantKey};
use serde::Serialize;

use crate::cores;

/// Options of a measurement.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Rounds, of which the fastest counts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Packets in each round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub packets: u32,
}

/// A program on one kind of packet.
#[derive(Clone, Debug, Serialize)]
pub struct Whole {
    /// Program and packet.
    pub name: &'static str,
    /// eBPF instructions of the program.
    pub instructions: usize,
    /// Instructions on its longest path.
    pub longest_path: usize,
    /// Nanoseconds per packet, machine code.
    pub jit_ns: f64,
    /// Nanoseconds per packet, interpreter.
    pub interpreter_ns: f64,
    /// Milliseconds to compile the P4 source.
    pub compile_ms: f64,
    /// Milliseconds to verify the object.
    pub verify_ms: f64,
}

/// A phase of a packet's processing in the P4 VM.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Time that the phase adds, nanoseconds. A phase that the processor overlaps with another adds nothing.
    pub ns: f64,
    /// Time with this phase and all previous ones, nanoseconds.
    pub so_far_ns: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whole programs.
    pub programs: Vec<Whole>,
    /// Phases of one program, machine code.
    pub phases: Vec<Phase>,
    /// Opening one sealed snapshot, nanoseconds: once per publication, every 10 ms.
    pub decrypt_ns: f64,
}

const GUARD: &str = include_str!("../../../../examples/programs/tcp_guard.p4");
const PHASES: &str = include_str!("phases.p4");
const PHASE_MACROS: [(&str, &str); 4] =
    [("parse", "PARSE"), ("tables", "TABLE"), ("information", "INFO"), ("deparse", "DEPARSE")];

const FLAG_SYN: u8 = 0x02;
const FLAG_ACK: u8 = 0x10;

/// A TCP segment to port 80 over IPv4: the first 128 bytes.
fn segment(flags: u8) -> [u8; 128] {
    let mut p = [0; 128];
    (p[12], p[14], p[22], p[23], p[37], p[47]) = (8, 0x45, 64, 6, 80, flags);
    p
}

fn information() -> VmInfo {
    let mut snapshot = Snapshot::default();
    snapshot.set(field::TCP_MEM_USED, 1 << 20);
    snapshot.set(field::TCP_MEM_THRESHOLD, 2 << 20);
    VmInfo::new(&snapshot, InfoStatus::Known)
}

/// Measures everything; calls `progress` before each of [`STEPS`] steps.
///
/// # Errors
/// A program does not compile or load, which is a bug, or no key can be generated.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    cores::pin(cores::two()[0]);
    let mut programs = Vec::new();
    for (name, flags) in
        [("tcp_guard, new connection", FLAG_SYN), ("tcp_guard, established connection", FLAG_ACK)]
    {
        progress(name.into());
        programs.push(whole(options, name, flags)?);
    }
    progress("phases".into());
    let phases = phases(options)?;
    progress("decryption".into());
    Ok(Report { programs, phases, decrypt_ns: decryption(options)? })
}

/// Steps that [`run`] reports.
pub const STEPS: usize = 4;

fn least(options: &Options, mut f: impl FnMut()) -> f64 {
    let time = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        f();
        start.elapsed()
    };
    let mut round = || (0..options.packets).for_each(|_| f());
    let best = (0..options.rounds).map(|_| time(&mut round)).min().unwrap_or(Duration::ZERO);
    best.as_nanos() as f64 / f64::from(options.packets)
}

/// A compiled program with the time that each step took.
pub(crate) struct CompiledProgram {
    pub(crate) compiled: p4shield_p4::Compiled,
    compile: Duration,
    verify: Duration,
    pub(crate) jit: Program,
    interpreter: Program,
}

pub(crate) fn make(name: &str, source: &str, macros: &[&str]) -> anyhow::Result<CompiledProgram> {
    let defines = macros.iter().map(|m| ((*m).to_owned(), "1".to_owned())).collect();
    let start = Instant::now();
    let compiled = p4shield_p4::compile(
        name,
        source,
        &NoIncludes,
        &p4shield_p4::Options { defines, ..Default::default() },
    )
    .map_err(|e| anyhow!(e.render(false)))?;
    let compile = start.elapsed();
    let object = Object::parse(&compiled.object)?;
    let linked = link(&[object])?;
    let start = Instant::now();
    let (verified, _) = verify(linked, &Limits::default())?;
    let verify = start.elapsed();
    let load = |mode| Program::load(&verified, &EngineOptions { mode, ..EngineOptions::default() });
    Ok(CompiledProgram {
        compile,
        verify,
        jit: load(Mode::Jit)?,
        interpreter: load(Mode::Interpreter)?,
        compiled,
    })
}

/// Runs `program` on `header` repeatedly, including the copy of the header.
fn per_packet(options: &Options, program: &mut Program, header: &[u8; 128]) -> anyhow::Result<f64> {
    let (info, meta) = (information(), Meta::default());
    let mut packet = Packet::new(128, 128);
    let mut passed = 0_u64;
    let ns = least(options, || {
        packet.reset(black_box(header), 1500);
        let outcome = program.run(&mut packet, &meta, &info);
        passed += u64::from(black_box(outcome).verdict == Verdict::Pass);
    });
    // A program that drops takes a shorter path than the measured one.
    ensure!(passed > 0, "the measured program drops its packets");
    Ok(ns)
}

fn whole(options: &Options, name: &'static str, flags: u8) -> anyhow::Result<Whole> {
    let mut made = make("tcp_guard.p4", GUARD, &[])?;
    let header = segment(flags);
    Ok(Whole {
        name,
        instructions: made.compiled.facts.instructions,
        longest_path: made.compiled.facts.longest_path,
        jit_ns: per_packet(options, &mut made.jit, &header)?,
        interpreter_ns: per_packet(options, &mut made.interpreter, &header)?,
        compile_ms: made.compile.as_secs_f64() * 1e3,
        verify_ms: made.verify.as_secs_f64() * 1e3,
    })
}

fn phases(options: &Options) -> anyhow::Result<Vec<Phase>> {
    let header = segment(FLAG_SYN);
    let mut packet = Packet::new(128, 128);
    let copy = least(options, || black_box(&mut packet).reset(black_box(&header), 1500));
    let mut phases = vec![Phase { name: "copy of the header", ns: copy, so_far_ns: copy }];
    let mut add = |name, macros: &[&str]| {
        let now = per_packet(options, &mut make("phases.p4", PHASES, macros)?.jit, &header)?;
        let before = phases.last().map_or(0.0, |p: &Phase| p.so_far_ns);
        phases.push(Phase { name, ns: (now - before).max(0.0), so_far_ns: now });
        anyhow::Ok(())
    };
    add("call and context", &[])?;
    let macros = PHASE_MACROS.map(|(_, name)| name);
    for (i, (name, _)) in PHASE_MACROS.into_iter().enumerate() {
        add(name, &macros[..=i])?;
    }
    Ok(phases)
}

fn decryption(options: &Options) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let key = TenantKey::generate(&folder.path().join("key"))?;
    let identity = Identity { tenant: "bench", vm: "bench" };
    let epoch = Epoch::next_in(&folder.path().join("epoch"))?;
    let mut sealer = InfoSealer::new(&key, &identity, epoch);
    let mut opener = InfoOpener::new(&key, &identity, AgeLimit::default());
    let packets = options.packets.min(2000);
    let mut best = f64::INFINITY;
    for _ in 0..options.rounds.min(20) {
        let now = Now::read();
        let mut snapshot = Snapshot::default();
        snapshot.taken_ns = now.real_ns;
        let sealed: Vec<(u64, u64, Vec<u8>)> = (0..packets)
            .map(|_| {
                let s = sealer.seal(&snapshot);
                (s.epoch, s.counter, s.bytes.to_vec())
            })
            .collect();
        let start = Instant::now();
        for (epoch, counter, bytes) in &sealed {
            opener.open(*epoch, *counter, bytes, now)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(packets));
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_measured() {
        let report = run(&Options { rounds: 2, packets: 50 }, |_| ()).unwrap();
        assert_eq!(report.phases.len(), 2 + PHASE_MACROS.len());
        assert!(report.programs.iter().all(|p| p.jit_ns > 0.0 && p.longest_path <= 60), "{report:?}");
        assert!(report.decrypt_ns > 0.0);
    }
}
