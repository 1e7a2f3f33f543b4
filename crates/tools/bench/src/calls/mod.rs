//! `p4shield-dev bench calls`: packets a second of a P4 switch whose program calls a function for each, with
//! the function in the program, and in a P4 VM's process.
//!
//! The program is that of TEE Time at P4, and the function its secret part. Ports are memory. Both switches
//! are there all the time, and are measured in turn, beside a third one whose thread answers its calls
//! itself: that divides the cost of a call into the switch's own and that of channel and compartment. The
//! packet thread has the first core, the P4 VM any. Packets are received as long as there is room for them to
//! wait, as a switch does that is not overloaded.

mod echo;

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{EngineOptions, Object, Program, link};
use p4shield_p4::{Compiled, NoIncludes, Placement};
use p4shield_p4switch::{Apart, FunctionsConfig};
use p4shield_stf::externs;
use p4shield_switch::{BATCH, CallFail, CallPort, CallSettings, MAX_CALLS, PacketIo, Switch, Traits};
use p4shield_testbed::process::product;
use serde::Serialize;

use self::echo::Echo;
use crate::fixture::forward::on_a_core;
use crate::fixture::opened::in_memory;
use crate::fixture::product::SECRET;
use crate::fixture::programs::{TEE_CALL, install};
use crate::stats::Spread;

/// Longest time for an answer: no packet is lost to other load of the machine.
const DEADLINE: Duration = Duration::from_secs(5);

/// Options of a measurement.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Rounds of each placement
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Milliseconds of a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub milliseconds: u32,
    /// Bytes of a packet, without the frame check sequence
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub bytes: u16,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes of a packet.
    pub packet_bytes: u16,
    /// Million packets a second with the function in the program.
    pub inline: Spread,
    /// The same with the function in a compartment.
    pub apart: Spread,
    /// The ratio of both in each round.
    pub ratio: Spread,
    /// Million packets a second with calls that the packet thread answers itself, without a function.
    pub echo: Spread,
    /// The ratio of that to the first in each round.
    pub echo_ratio: Spread,
    /// Nanoseconds of a packet more than inline, by the medians.
    pub costs: Costs,
}

/// The division of what a call costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// The switch's own work: the second run, and the packet that waits.
    pub switch_ns: f64,
    /// Channel and compartment, as far as the packet thread has to wait for them.
    pub compartment_ns: f64,
}

impl Costs {
    /// Divides the cost of a call by million packets a second.
    fn of(inline: f64, echo: f64, apart: f64) -> Self {
        Self { switch_ns: 1e3 / echo - 1e3 / inline, compartment_ns: 1e3 / apart - 1e3 / echo }
    }
}

/// Measures both placements in turn; calls `progress` before each round.
///
/// # Errors
/// clang or `p4shield` is missing, the P4 VM does not start, or packets are lost, which is a bug.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let length = Duration::from_millis(options.milliseconds.into());
    // Before this thread has a core of its own, which the P4 VM would inherit.
    let compiled = compile(Placement::Extern)?;
    let object = function(&compiled)?;
    let mut apart = start(&compiled, object.clone())?;
    let channel = apart.channels.pop().context("the P4 VM has a channel")?;
    let ports = || in_memory(options.bytes.into(), 1).first;
    let mut inline = switch(&compile(Placement::Inline)?, &[object], ports())?;
    let mut placed = switch(&compiled, &[], ports())?;
    let mut echoed = switch(&compiled, &[], ports())?;
    placed.set_calls(Some(settings(channel)));
    echoed.set_calls(Some(settings(Echo::new())));
    let mut round = |n| {
        progress(format!("round {n}"));
        on_a_core(|| Ok([rate(&mut inline, length)?, rate(&mut placed, length)?, rate(&mut echoed, length)?]))
    };
    let measured = (1..=options.rounds).map(&mut round).collect::<anyhow::Result<Vec<[f64; 3]>>>();
    apart.end();
    let rates = measured?;
    let of = |side: usize| Spread::of(rates.iter().map(|all| all[side]).collect());
    let ratio = Spread::of(rates.iter().map(|[inline, apart, _]| apart / inline).collect());
    let echo_ratio = Spread::of(rates.iter().map(|[inline, _, echo]| echo / inline).collect());
    let [inline, apart, echo] = [of(0), of(1), of(2)];
    let costs = Costs::of(inline.median, echo.median, apart.median);
    Ok(Report { packet_bytes: options.bytes, inline, apart, ratio, echo, echo_ratio, costs })
}

fn settings(port: impl CallPort + 'static) -> Box<CallSettings> {
    Box::new(CallSettings { port: Box::new(port), deadline: DEADLINE, fail: CallFail::Drop })
}

fn compile(placement: Placement) -> anyhow::Result<Compiled> {
    let options = p4shield_p4::Options { placement, ..Default::default() };
    p4shield_p4::compile("tee_call.p4", TEE_CALL.source, &NoIncludes, &options)
        .map_err(|e| anyhow!(e.render(false)))
}

/// Compiles the function.
fn function(compiled: &Compiled) -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("secret.c");
    std::fs::write(&file, SECRET)?;
    Ok(externs::compile(&file, &compiled.c_header)?)
}

/// Starts the P4 VM.
fn start(compiled: &Compiled, function: Vec<u8>) -> anyhow::Result<Apart> {
    let own = compiled.functions.clone().context("the program has a function for a compartment")?;
    let config = FunctionsConfig {
        machine: None,
        binary: product()?,
        objects: vec![own, function],
        longest_message: compiled.facts.longest_message,
        maps: None,
        allow_missing: Vec::new(),
        deadline: DEADLINE,
        fail: CallFail::Drop,
    };
    Apart::start(&config, 1).map_err(|why| anyhow!(why))
}

/// Makes a switch with the program and these objects.
fn switch<I: PacketIo>(compiled: &Compiled, others: &[Vec<u8>], ports: I) -> anyhow::Result<Switch<I>> {
    let all = std::iter::once(&compiled.object).chain(others);
    let objects = all.map(|bytes| Object::parse(bytes)).collect::<Result<Vec<_>, _>>()?;
    let traits = Traits {
        architecture: compiled.facts.architecture,
        divided: objects[0].is_divided(),
        reads_queues: objects[0].reads_queues(),
    };
    let (verified, _) = verify(link(&objects)?, &Limits::default())?;
    let mut program = Program::load(&verified, &EngineOptions::default())?;
    (TEE_CALL.entries)().iter().try_for_each(|e| install(&compiled.facts.tables, &mut program, e))?;
    Ok(Switch::new(ports, vec![0, 1], program, traits)?)
}

/// Longest time by which a measurement is extended until a packet is sent: the P4 VM may have no core.
const PATIENCE: Duration = Duration::from_secs(10);

/// Forwards for a time, and returns million packets a second that were sent.
fn rate<I: PacketIo>(switch: &mut Switch<I>, length: Duration) -> anyhow::Result<f64> {
    let sent = |switch: &Switch<I>| switch.counts().ports.iter().map(|p| p.sent).sum::<u64>();
    let (start, before) = (Instant::now(), sent(switch));
    loop {
        for _ in 0..64 {
            // Two ports receive a batch each.
            if switch.counts().waiting as usize + 2 * BATCH > MAX_CALLS {
                switch.round_of_answers()?;
            } else {
                switch.round()?;
            }
        }
        let (elapsed, done) = (start.elapsed(), sent(switch) - before);
        if elapsed >= length && (done > 0 || elapsed >= length + PATIENCE) {
            let rate = done as f64 / elapsed.as_secs_f64() / 1e6;
            while switch.awaits_answers() {
                switch.round_of_answers()?;
            }
            ensure!(switch.counts().dropped.iter().all(|n| *n == 0), "the measured program drops packets");
            return Ok(rate);
        }
    }
}
