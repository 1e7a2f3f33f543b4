//! Runs a script on a device.

use std::collections::BTreeMap;

use crate::device::{Device, RunError, Sent};
use crate::diff::{self, Difference};
use crate::members;
use crate::pattern::Pattern;
use crate::pcap::Captured;
use crate::replication::ReplicationError;
use crate::script::{Command, Compare, Statement, Unit};
use crate::state::{State, StateError};

/// What went wrong at a line of the script.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The line, from 1; 0 for what no line asked for.
    pub line: usize,
    /// What it is.
    pub what: Trouble,
}

/// What may go wrong.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Trouble {
    /// A command cannot be carried out.
    Command(StateError),
    /// A packet was not judged.
    Run(RunError),
    /// The packet that left is not the one expected.
    Different(Box<Difference>),
    /// A packet that was expected did not leave.
    Missing {
        /// Where it was expected.
        port: u32,
    },
    /// A packet left that nothing expected.
    Unexpected(Sent),
    /// A command about copies of packets cannot be carried out.
    Replication(ReplicationError),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match &self.what {
            Trouble::Command(e) => write!(f, "{e}"),
            Trouble::Run(e) => write!(f, "{e}"),
            Trouble::Different(d) => write!(f, "{d}"),
            Trouble::Missing { port } => write!(f, "no packet left port {port}"),
            Trouble::Unexpected(s) => {
                write!(f, "a packet that nothing expects left port {}:\n  {}", s.port, diff::spaced(&s.bytes))
            }
            Trouble::Replication(e) => write!(f, "{e}"),
        }
    }
}

/// What became of a script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What went wrong, in order.
    pub failures: Vec<Failure>,
    /// Packets that arrived.
    pub packets: usize,
    /// Packets that were expected.
    pub expected: usize,
    /// What commands show, each with its line.
    pub shown: Vec<(usize, String)>,
}

impl Report {
    /// Whether everything was as expected.
    #[must_use]
    pub const fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// What is expected and what came, by port.
#[derive(Default)]
struct Ports {
    expected: BTreeMap<u32, Vec<(usize, Option<Pattern>)>>,
    /// With the line of the packet that led to it.
    sent: BTreeMap<u32, Vec<(usize, Sent)>>,
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
                            failures.push(Failure { line: *line, what: Trouble::Different(Box::new(d)) });
                        }
                    }
                    (Some((line, None)), None) | (Some((line, Some(_))), None) => {
                        failures.push(Failure { line: *line, what: Trouble::Missing { port: *port } });
                    }
                    (None, Some((line, s))) => {
                        failures.push(Failure { line: *line, what: Trouble::Unexpected(s.clone()) });
                    }
                    (Some((_, None)), Some(_)) | (None, None) => {}
                }
            }
        }
    }

    /// Packets that left so far without being expected so far.
    fn surplus(&self) -> impl Iterator<Item = &Sent> {
        self.sent.iter().flat_map(|(port, sent)| {
            let expected = self.expected.get(port).map_or(0, Vec::len);
            sent.iter().skip(expected).map(|(_, s)| s)
        })
    }
}

/// Runs a script. Nothing in it makes this fail: everything that goes wrong is in the report.
pub fn run(script: &[Statement], device: &mut Device) -> Report {
    let (mut report, mut ports, mut state) = (Report::default(), Ports::default(), State::default());
    for s in script {
        if let Err(what) = command(s, device, &mut state, &mut ports, &mut report) {
            report.failures.push(Failure { line: s.line, what });
        }
    }
    ports.compare(&mut report.failures);
    report
}

/// Sends the packets of one capture to a port, and compares what leaves, wherever, with another capture.
pub fn run_capture(arriving: &[Captured], expected: &[Captured], port: u32, device: &mut Device) -> Report {
    let mut report = Report { packets: arriving.len(), expected: expected.len(), ..Report::default() };
    let mut ports = Ports::default();
    let wanted = expected.iter().map(|c| (0, Some(Pattern::exactly(&c.bytes)))).collect();
    ports.expected.insert(0, wanted);
    for packet in arriving {
        match device.receive(port, &packet.bytes) {
            Ok(sent) => ports.sent.entry(0).or_default().extend(sent.into_iter().map(|s| (0, s))),
            Err(e) => report.failures.push(Failure { line: 0, what: Trouble::Run(e) }),
        }
    }
    ports.compare(&mut report.failures);
    report
}

fn command(
    s: &Statement,
    device: &mut Device,
    state: &mut State,
    ports: &mut Ports,
    report: &mut Report,
) -> Result<(), Trouble> {
    let done = |r: Result<(), StateError>| r.map_err(Trouble::Command);
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
            for sent in device.receive(*port, bytes).map_err(Trouble::Run)? {
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
            Some(sent) => Err(Trouble::Unexpected(sent.clone())),
            None => Ok(()),
        },
        Command::Wait => Ok(()),
        Command::CheckCounter { name, index, test } => {
            let (unit, compare, wanted) = test.unwrap_or((Unit::Packets, Compare::Ge, 0));
            let got = state.counter(device, name, index, unit).map_err(Trouble::Command)?;
            if compare.holds(got, wanted) {
                return Ok(());
            }
            let unit = if unit == Unit::Bytes { "bytes" } else { "packets" };
            let wanted = format!("{compare} {wanted}");
            Err(Trouble::Command(StateError::Counter { name: name.clone(), unit, got, wanted }))
        }
        Command::CounterRead { name, index } => {
            let at = crate::script::CounterIndex::Number(*index);
            let of = |unit| state.counter(device, name, &at, unit).map_err(Trouble::Command);
            let (packets, bytes) = (of(Unit::Packets)?, of(Unit::Bytes)?);
            report.shown.push((s.line, format!("{name}[{index}] = {packets} packets, {bytes} bytes")));
            Ok(())
        }
        Command::CounterWrite { name, index, values } => {
            done(State::set_counter(device, name, *index, *values))
        }
        Command::RegisterRead { name, index } => {
            let value = State::register(device, name, *index).map_err(Trouble::Command)?;
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
        Command::Replication(r) => device.groups.command(r).map_err(Trouble::Replication),
    }
}
