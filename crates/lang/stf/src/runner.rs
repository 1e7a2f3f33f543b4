//! Execution of a script on a device.

use std::collections::BTreeMap;

use crate::device::{Device, ReplicationError, RunError, SentPacket};
use crate::diff::{self, Difference};
use crate::error::StateError;
use crate::members;
use crate::pattern::Pattern;
use crate::pcap::CapturedPacket;
use crate::script::{Command, Compare, Statement, Unit};
use crate::state::State;

/// A failure at a line of the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Line of the script, from 1; 0 if the failure belongs to no line.
    pub line: usize,
    /// Kind of the failure.
    pub kind: FailureKind,
}

/// Kinds of failures.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A command failed.
    Command(StateError),
    /// The device did not process a packet.
    Run(RunError),
    /// A packet that left differs from the expected one.
    Different(Box<Difference>),
    /// An expected packet did not leave.
    Missing {
        /// Port on which it was expected.
        port: u32,
    },
    /// An unexpected packet left.
    Unexpected(SentPacket),
    /// A multicast or mirroring command failed.
    Replication(ReplicationError),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match &self.kind {
            FailureKind::Command(e) => write!(f, "{e}"),
            FailureKind::Run(e) => write!(f, "{e}"),
            FailureKind::Different(d) => write!(f, "{d}"),
            FailureKind::Missing { port } => write!(f, "no packet left port {port}"),
            FailureKind::Unexpected(s) => {
                write!(f, "an unexpected packet left port {}:\n  {}", s.port, diff::spaced(&s.bytes))
            }
            FailureKind::Replication(e) => write!(f, "{e}"),
        }
    }
}

/// The result of a script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Failures, in order.
    pub failures: Vec<Failure>,
    /// Number of sent packets.
    pub packets: usize,
    /// Number of expected packets.
    pub expected: usize,
    /// Output of commands, with their lines.
    pub shown: Vec<(usize, String)>,
}

impl Report {
    /// Returns whether the script passed.
    #[must_use]
    pub const fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Expected packets and packets that left, by port.
#[derive(Default)]
struct Ports {
    expected: BTreeMap<u32, Vec<(usize, Option<Pattern>)>>,
    /// With the line of the packet that caused it.
    sent: BTreeMap<u32, Vec<(usize, SentPacket)>>,
}

impl Ports {
    fn compare(&self, failures: &mut Vec<Failure>) {
        let ports = self.expected.keys().chain(self.sent.keys().filter(|p| !self.expected.contains_key(p)));
        for port in ports {
            let expected = self.expected.get(port).map(Vec::as_slice).unwrap_or_default();
            let sent = self.sent.get(port).map(Vec::as_slice).unwrap_or_default();
            for i in 0..expected.len().max(sent.len()) {
                match (expected.get(i), sent.get(i)) {
                    (Some((line, Some(pattern))), Some((_, s))) => {
                        if let Err(m) = pattern.matches(&s.bytes) {
                            let d = Difference::new(*port, i + 1, pattern, &s.bytes, &m);
                            failures.push(Failure { line: *line, kind: FailureKind::Different(Box::new(d)) });
                        }
                    }
                    (Some((line, None)), None) | (Some((line, Some(_))), None) => {
                        failures.push(Failure { line: *line, kind: FailureKind::Missing { port: *port } });
                    }
                    (None, Some((line, s))) => {
                        failures.push(Failure { line: *line, kind: FailureKind::Unexpected(s.clone()) });
                    }
                    (Some((_, None)), Some(_)) | (None, None) => {}
                }
            }
        }
    }

    /// Returns packets that left beyond the number expected so far.
    fn surplus(&self) -> impl Iterator<Item = &SentPacket> {
        self.sent.iter().flat_map(|(port, sent)| {
            let expected = self.expected.get(port).map_or(0, Vec::len);
            sent.iter().skip(expected).map(|(_, s)| s)
        })
    }
}

/// Runs a script. The report contains every failure.
pub fn run(script: &[Statement], device: &mut Device) -> Report {
    let (mut report, mut ports, mut state) = (Report::default(), Ports::default(), State::default());
    for s in script {
        if let Err(kind) = execute(s, device, &mut state, &mut ports, &mut report) {
            report.failures.push(Failure { line: s.line, kind });
        }
    }
    ports.compare(&mut report.failures);
    report
}

/// Sends the packets of a capture to a port, and compares all packets that leave with another capture.
pub fn run_capture(
    arriving: &[CapturedPacket],
    expected: &[CapturedPacket],
    port: u32,
    device: &mut Device,
) -> Report {
    let mut report = Report { packets: arriving.len(), expected: expected.len(), ..Report::default() };
    let mut ports = Ports::default();
    let wanted = expected.iter().map(|c| (0, Some(Pattern::exactly(&c.bytes)))).collect();
    ports.expected.insert(0, wanted);
    for packet in arriving {
        match device.receive(port, &packet.bytes) {
            Ok(sent) => ports.sent.entry(0).or_default().extend(sent.into_iter().map(|s| (0, s))),
            Err(e) => report.failures.push(Failure { line: 0, kind: FailureKind::Run(e) }),
        }
    }
    ports.compare(&mut report.failures);
    report
}

fn execute(
    s: &Statement,
    device: &mut Device,
    state: &mut State,
    ports: &mut Ports,
    report: &mut Report,
) -> Result<(), FailureKind> {
    let done = |r: Result<(), StateError>| r.map_err(FailureKind::Command);
    match &s.command {
        Command::Add { table, priority, matches, action, id } => {
            done(state.add(device, table, *priority, matches, action, id.as_deref()))
        }
        Command::Group { table, number, members } => {
            done(members::set_group(device, table, *number, members))
        }
        Command::AddValue { set, values } => done(members::add_value(device, set, values)),
        Command::ClearValues(set) => done(members::clear_values(device, set)),
        Command::SetDefault { table, action } => done(state.set_default(device, table, action)),
        Command::Remove(id) => done(state.remove(device, id.as_deref())),
        Command::Packet { port, bytes } => {
            report.packets += 1;
            for sent in device.receive(*port, bytes).map_err(FailureKind::Run)? {
                ports.sent.entry(sent.port).or_default().push((s.line, sent));
            }
            Ok(())
        }
        Command::Expect { port, pattern } => {
            report.expected += 1;
            ports.expected.entry(*port).or_default().push((s.line, pattern.clone()));
            Ok(())
        }
        Command::NoPacket => match ports.surplus().next() {
            Some(sent) => Err(FailureKind::Unexpected(sent.clone())),
            None => Ok(()),
        },
        Command::Wait => Ok(()),
        Command::CheckCounter { name, index, test } => {
            let (unit, compare, wanted) = test.unwrap_or((Unit::Packets, Compare::Ge, 0));
            let got = state.counter(device, name, index, unit).map_err(FailureKind::Command)?;
            if compare.holds(got, wanted) {
                return Ok(());
            }
            let unit = if unit == Unit::Bytes { "bytes" } else { "packets" };
            let wanted = format!("{compare} {wanted}");
            Err(FailureKind::Command(StateError::Counter { name: name.clone(), unit, got, wanted }))
        }
        Command::CounterRead { name, index } => {
            let at = crate::script::CounterIndex::Number(*index);
            let of = |unit| state.counter(device, name, &at, unit).map_err(FailureKind::Command);
            let (packets, bytes) = (of(Unit::Packets)?, of(Unit::Bytes)?);
            report.shown.push((s.line, format!("{name}[{index}] = {packets} packets, {bytes} bytes")));
            Ok(())
        }
        Command::CounterWrite { name, index, values } => {
            done(State::set_counter(device, name, *index, *values))
        }
        Command::RegisterRead { name, index } => {
            let value = State::register(device, name, *index).map_err(FailureKind::Command)?;
            report.shown.push((s.line, format!("{name}[{index}] = {value}")));
            Ok(())
        }
        Command::RegisterWrite { name, index, value } => {
            done(State::set_register(device, name, *index, value))
        }
        Command::RegisterReset(name) => done(State::reset_register(device, name)),
        Command::MeterRates { name, index, rates } => {
            done(state.set_meter(device, name, index.as_ref(), rates))
        }
        Command::Replication(r) => {
            device.replication(&r.command, &r.numbers).map_err(FailureKind::Replication)
        }
    }
}
