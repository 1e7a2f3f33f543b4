//! A device: a program on the engine, with ports.

use std::sync::Arc;

use p4shield_abi::Verdict;
use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};
use p4shield_abi::context::action;
use p4shield_abi::info::InfoStatus;
use p4shield_bpf::maps::{Map, MapError, UpdateFlag};
use p4shield_bpf::verify::{Limits, Refusal, verify};
use p4shield_bpf::{
    EngineOptions, LinkError, LoadError, Meta, Mode, Object, ObjectError, Packet, Program, Stop, VmInfo, link,
};
use p4shield_entries::multicast::MulticastGroups;
use p4shield_p4::{Compiled, Facts};
use p4shield_tables::model::Architecture;
use p4shield_tables::write::GroupCopy;

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

/// A packet that leaves the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// Output port.
    pub port: u32,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// The action that a run selects for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PacketAction {
    Drop,
    Send(SentPacket),
    /// The packet goes to this multicast group.
    Replicate(u32),
}

impl std::fmt::Display for PacketAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drop => f.write_str("drops it"),
            Self::Send(s) => write!(f, "sends {} to port {}", hex::encode(&s.bytes), s.port),
            Self::Replicate(group) => write!(f, "sends it to group {group}"),
        }
    }
}

/// A loaded program.
pub struct Device {
    /// Multicast groups.
    pub groups: MulticastGroups,
    engines: Vec<(&'static str, Program)>,
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

/// Time between two packets: a microsecond.
const STEP_NS: u64 = 1_000;

impl Device {
    /// Links a program with other objects, verifies it and loads it.
    ///
    /// # Errors
    /// The error of the step that failed.
    pub fn load(compiled: &Compiled, others: &[Vec<u8>], engine: Engine) -> Result<Self, DeviceError> {
        let mut objects = vec![Object::parse(&compiled.object)?];
        for other in others {
            objects.push(Object::parse(other)?);
        }
        let linked = link(&objects)?;
        let limits = Limits::default();
        let (verified, _) = verify(linked, &limits).map_err(|r| DeviceError::Refused(Box::new(r)))?;
        let load = |name, mode| -> Result<_, LoadError> {
            // The same random numbers on every run, so that tests are repeatable.
            let options = EngineOptions { mode, map_bytes: 1 << 30, ..EngineOptions::default() };
            Ok((name, Program::load(&verified, &options)?))
        };
        let engines = match engine {
            Engine::Jit => vec![load("JIT", Mode::Jit)?],
            Engine::Interpreter => vec![load("interpreter", Mode::Interpreter)?],
            Engine::Both => vec![load("JIT", Mode::Jit)?, load("interpreter", Mode::Interpreter)?],
        };
        Ok(Self {
            groups: MulticastGroups::default(),
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

    /// Processes a packet and returns the packets that leave: one, none, or one for each copy of its
    /// multicast group.
    ///
    /// # Errors
    /// If an engine stops the program, or the engines disagree.
    pub fn receive(&mut self, port: u32, bytes: &[u8]) -> Result<Vec<SentPacket>, RunError> {
        self.now_ns += STEP_NS;
        let group = match self.run_once(port, bytes, None)? {
            PacketAction::Replicate(group) => group,
            PacketAction::Send(sent) => return Ok(vec![sent]),
            PacketAction::Drop => return Ok(Vec::new()),
        };
        let mut left = Vec::new();
        for copy in self.groups.copies(group) {
            if let PacketAction::Send(sent) = self.run_once(port, bytes, Some(copy))? {
                left.push(sent);
            }
        }
        Ok(left)
    }

    /// Runs the program once on every engine: for a packet, or for one copy of it.
    fn run_once(
        &mut self,
        port: u32,
        bytes: &[u8],
        copy: Option<GroupCopy>,
    ) -> Result<PacketAction, RunError> {
        let meta = Meta { input_port: port, timestamp_ns: self.now_ns, ..Meta::default() };
        let mut results = Vec::new();
        // A program for `ebpf_model` is a filter: packets leave on the port on which they arrived.
        let stays = self.facts.architecture == Architecture::Ebpf;
        for (engine, program) in &mut self.engines {
            self.packet.reset(bytes, bytes.len() as u32);
            let result = match copy {
                None => program.run(&mut self.packet, &meta, &self.info),
                Some(copy) => {
                    program.run_copy(&mut self.packet, &meta, &self.info, (copy.port, copy.replica))
                }
            };
            if let Some(stop) = result.stopped {
                return Err(RunError::Stopped { engine, stop });
            }
            results.push(match result.verdict {
                Verdict::Pass => {
                    let mut out = self.packet.bytes().to_vec();
                    // The bytes after the header copy follow unchanged, unless the program cut them off.
                    let unseen = bytes.get(MAX_HEADER_BYTES as usize..).unwrap_or_default();
                    out.extend(unseen);
                    out.truncate(result.total as usize);
                    PacketAction::Send(SentPacket {
                        port: if stays { port } else { result.output_port },
                        bytes: out,
                    })
                }
                _ if self.facts.replicates && result.output_action == action::REPLICATE => {
                    PacketAction::Replicate(result.output_port)
                }
                _ => PacketAction::Drop,
            });
        }
        if let [jit, interpreter] = results.as_slice()
            && jit != interpreter
        {
            return Err(RunError::Disagree { jit: jit.to_string(), interpreter: interpreter.to_string() });
        }
        Ok(results.pop().unwrap_or(PacketAction::Drop))
    }

    /// Returns the map with this name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.engines.first().and_then(|(_, p)| p.maps()?.get(name))
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
        for (_, program) in &mut self.engines {
            let map = program.maps_mut().and_then(|m| m.get_mut(map)).ok_or(MapError::NotFound)?;
            f(map)?;
        }
        Ok(())
    }
}
