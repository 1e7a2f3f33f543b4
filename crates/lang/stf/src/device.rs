//! A device: a program on the engine, with ports.

use crate::compartment::{Call, Calls, Compartment};
use std::sync::Arc;

use p4shield_abi::Verdict;
use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};
use p4shield_abi::division::destination;
use p4shield_abi::info::InfoStatus;
use p4shield_bpf::maps::{Map, MapError, UpdateFlag};
use p4shield_bpf::verify::{Limits, Refusal, verify};
use p4shield_bpf::{
    EngineOptions, Entry, LinkError, LoadError, Meta, Mode, Object, ObjectError, Packet, Program, RunResult,
    Stop, Verified, VmInfo, link,
};
use p4shield_entries::mirroring::{self, MirroringError};
use p4shield_entries::multicast::{MulticastError, MulticastGroups};
use p4shield_p4::{Compiled, Facts};
use p4shield_tables::model::Architecture;
use p4shield_tables::write::{CloneSession, Write};
use p4shield_traffic::{Copy, Event, GroupError, Loss, Outcome, Ready, Run, Session, SessionError, Traffic};

/// The engine that executes the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Machine code.
    Jit,
    /// The reference interpreter.
    Interpreter,
    /// Both engines, which have to agree.
    #[default]
    Both,
}

/// Reason why a program cannot run on the device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// An object cannot be read.
    #[error("cannot read the object: {0}")]
    Object(#[from] ObjectError),
    /// The objects cannot be linked.
    #[error("cannot link the program: {0}")]
    Link(#[from] LinkError),
    /// The verifier refuses the program.
    #[error("the verifier refuses the program: {0}")]
    Refused(Box<Refusal>),
    /// The engine cannot load the program.
    #[error("cannot load the program: {0}")]
    Load(#[from] LoadError),
}

/// Reason why a packet has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The engine stopped the program.
    #[error("the {engine} stopped the program: {stop}")]
    Stopped {
        /// Name of the engine.
        engine: &'static str,
        /// Reason of the stop.
        stop: Stop,
    },
    /// The engines do not agree.
    #[error("the engines disagree: JIT {jit}, interpreter {interpreter}")]
    Disagree {
        /// The JIT's result.
        jit: String,
        /// The interpreter's result.
        interpreter: String,
    },
}

/// Reason why a command about multicast groups or clone sessions fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// A command about groups is refused.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// A command about sessions is refused.
    #[error(transparent)]
    Mirroring(#[from] MirroringError),
    /// A group is refused.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// A session is refused.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A packet that leaves the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// Output port.
    pub port: u32,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// The packets that left the device for one, on one engine.
struct Collected<'a> {
    sent: Vec<SentPacket>,
    stopped: Option<Stop>,
    architecture: Architecture,
    /// The port at which the packet arrived.
    from: u32,
    /// The packet as it arrived.
    arrived: &'a [u8],
    calls: Calls,
}

impl Outcome for Collected<'_> {
    fn end(&mut self, packet: &Packet, result: &RunResult) {
        self.stopped = self.stopped.or(result.stopped);
        if result.verdict == Verdict::Pass {
            let mut bytes = packet.bytes().to_vec();
            // The bytes after the header copy follow unchanged, unless the program cut them off.
            bytes.extend(self.arrived.get(MAX_HEADER_BYTES as usize..).unwrap_or_default());
            bytes.truncate(result.total as usize);
            let port = match self.architecture {
                Architecture::V1model => destination(result.output_port).0.into(),
                Architecture::Ubpf => result.output_port,
                // It does not choose one.
                Architecture::Ebpf => self.from,
            };
            self.sent.push(SentPacket { port, bytes });
        }
    }

    fn lose(&mut self, _: Loss) {}

    fn call(&mut self, ready: Ready<'_>) -> bool {
        self.calls.push_back(Call::of(&ready));
        true
    }

    fn note(&mut self, _: Event) {}
}

fn described(sent: &[SentPacket]) -> String {
    if sent.is_empty() {
        return "drops it".to_owned();
    }
    let one = |s: &SentPacket| format!("sends {} to port {}", hex::encode(&s.bytes), s.port);
    sent.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A program on one engine.
struct Loaded {
    engine: &'static str,
    program: Program,
    /// Its functions that run in a compartment.
    compartment: Option<Compartment>,
}

/// A loaded program.
pub struct Device {
    multicast: MulticastGroups,
    traffic: Traffic,
    engines: Vec<Loaded>,
    facts: Arc<Facts>,
    packet: Packet,
    info: VmInfo,
    now_ns: u64,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Links an object with others and verifies them.
fn verified(object: &[u8], others: &[Vec<u8>]) -> Result<Verified, DeviceError> {
    let mut objects = vec![Object::parse(object)?];
    for other in others {
        objects.push(Object::parse(other)?);
    }
    let linked = link(&objects)?;
    let (verified, _) = verify(linked, &Limits::default()).map_err(|r| DeviceError::Refused(Box::new(r)))?;
    Ok(verified)
}

/// Time between two packets: a microsecond.
const STEP_NS: u64 = 1_000;

impl Device {
    /// Links a program with other objects, verifies it and loads it. If some of its functions run in a
    /// compartment, all of them are in these objects.
    ///
    /// # Errors
    /// The error of the step that failed.
    pub fn load(compiled: &Compiled, others: &[Vec<u8>], engine: Engine) -> Result<Self, DeviceError> {
        let has_own = compiled.functions.is_none() || !compiled.facts.externs.is_empty();
        let main = verified(&compiled.object, if has_own { others } else { &[] })?;
        let functions = compiled.functions.as_ref().map(|object| verified(object, others)).transpose()?;
        let load = |engine, mode| -> Result<_, LoadError> {
            // The same random numbers on every run, so that tests are repeatable.
            let options = EngineOptions { mode, map_bytes: 1 << 30, ..EngineOptions::default() };
            let functions = functions.as_ref().map(|f| Program::load(f, &options)).transpose()?;
            let program = Program::load(&main, &options)?;
            Ok(Loaded { engine, program, compartment: functions.map(Compartment::new) })
        };
        let engines = match engine {
            Engine::Jit => vec![load("JIT", Mode::Jit)?],
            Engine::Interpreter => vec![load("interpreter", Mode::Interpreter)?],
            Engine::Both => vec![load("JIT", Mode::Jit)?, load("interpreter", Mode::Interpreter)?],
        };
        Ok(Self {
            multicast: MulticastGroups::default(),
            traffic: Traffic::new(),
            engines,
            facts: Arc::new(compiled.facts.clone()),
            packet: Packet::with_minimum(MAX_HEADROOM as usize, MAX_HEADER_BYTES as usize, 0),
            info: VmInfo::unknown(InfoStatus::Missing),
            now_ns: STEP_NS,
        })
    }

    /// Returns the compiler's facts about the program.
    #[must_use]
    pub fn facts(&self) -> Arc<Facts> {
        self.facts.clone()
    }

    /// Processes a packet and returns the packets that leave.
    ///
    /// # Errors
    /// If an engine stops the program, or the engines disagree.
    pub fn receive(&mut self, port: u32, bytes: &[u8]) -> Result<Vec<SentPacket>, RunError> {
        self.now_ns += STEP_NS;
        let meta = Meta { input_port: port, timestamp_ns: self.now_ns, ..Meta::default() };
        // A program for `ebpf_model` is a filter: packets leave on the port on which they arrived.
        let (architecture, from) = (self.facts.architecture, port);
        let Self { engines, packet, info, traffic, facts, .. } = self;
        let mut results: Vec<Vec<SentPacket>> = Vec::new();
        for Loaded { engine, program, compartment } in engines {
            packet.reset(bytes, bytes.len() as u32);
            let mut collected = Collected {
                sent: Vec::new(),
                stopped: None,
                architecture,
                from,
                arrived: bytes,
                calls: Calls::new(),
            };
            let result = program.run(packet, &meta, info);
            if (facts.divided || compartment.is_some()) && Traffic::asks(&result) {
                let mut run = Run { program, packet, meta: &meta, info };
                traffic.follow(&mut run, Entry::default(), bytes, &result, &mut collected);
                while let (Some(mut call), Some(c)) = (collected.calls.pop_front(), compartment.as_mut()) {
                    if c.answer(&mut call, info) {
                        traffic.answer(&mut run, call.ready(&meta), &mut collected);
                    }
                }
            } else {
                collected.end(packet, &result);
            }
            if let Some(stop) = collected.stopped {
                return Err(RunError::Stopped { engine, stop });
            }
            results.push(collected.sent);
        }
        if let [jit, interpreter] = results.as_slice()
            && jit != interpreter
        {
            let (jit, interpreter) = (described(jit), described(interpreter));
            return Err(RunError::Disagree { jit, interpreter });
        }
        Ok(results.pop().unwrap_or_default())
    }

    /// Executes a command of the reference switch that changes a multicast group or a clone session.
    ///
    /// # Errors
    /// [`ReplicationError`]; nothing has changed.
    pub fn replication(&mut self, command: &str, numbers: &[u64]) -> Result<(), ReplicationError> {
        match mirroring::write(command, numbers).transpose()? {
            Some(Write::SetSession(CloneSession { session, port, group })) => {
                self.traffic.sessions.set(session, Session { port, group })?;
            }
            Some(Write::DeleteSession { session }) => {
                self.traffic.sessions.delete(session);
            }
            _ => {
                for group in self.multicast.command(command, numbers)? {
                    let copies = self.multicast.copies(group.into());
                    let copies = copies.iter().map(|c| Copy { port: c.port, replica: c.replica });
                    self.traffic.groups.set(group, copies.collect())?;
                }
            }
        }
        Ok(())
    }

    /// Returns the map with this name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.engines.first().and_then(|loaded| loaded.program.maps()?.get(name))
    }

    /// Updates an entry in every engine.
    ///
    /// # Errors
    /// As [`Map::update`]; [`MapError::NotFound`] if the map does not exist.
    pub fn update(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        self.each(map, |m| m.update(key, value, UpdateFlag::Any))
    }

    /// Deletes an entry in every engine.
    ///
    /// # Errors
    /// As [`Device::update`].
    pub fn delete(&mut self, map: &str, key: &[u8]) -> Result<(), MapError> {
        self.each(map, |m| m.delete(key))
    }

    fn each(
        &mut self,
        map: &str,
        mut f: impl FnMut(&mut Map) -> Result<(), MapError>,
    ) -> Result<(), MapError> {
        for Loaded { program, .. } in &mut self.engines {
            let map = program.maps_mut().and_then(|m| m.get_mut(map)).ok_or(MapError::NotFound)?;
            f(map)?;
        }
        Ok(())
    }
}
