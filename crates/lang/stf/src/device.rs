//! A program on the engine, with ports.

use std::sync::Arc;

use p4shield_abi::Verdict;
use p4shield_abi::channel::{MAX_HEADER_BYTES, MAX_HEADROOM};
use p4shield_abi::context::action;
use p4shield_abi::info::InfoStatus;
use p4shield_bpf::maps::{Exists, Map, MapError};
use p4shield_bpf::verify::{Limits, Refusal, verify};
use p4shield_bpf::{
    EngineOptions, LinkError, LoadError, Meta, Mode, Object, ObjectError, Packet, Program, Stop, VmInfo, link,
};
use p4shield_p4::control::Architecture;
use p4shield_p4::{Compiled, Facts};

use crate::replication::{Groups, Replica};

/// What executes the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Machine code.
    Jit,
    /// The reference interpreter.
    Interpreter,
    /// Both, which have to agree.
    #[default]
    Both,
}

/// Why a program cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// An object cannot be read.
    #[error("the object cannot be read: {0}")]
    Object(#[from] ObjectError),
    /// Objects do not fit together.
    #[error("the program cannot be linked: {0}")]
    Link(#[from] LinkError),
    /// The verifier refuses it.
    #[error("the verifier refuses the program: {0}")]
    Refused(Box<Refusal>),
    /// The engine cannot load it.
    #[error("the program cannot be loaded: {0}")]
    Load(#[from] LoadError),
}

/// What went wrong while a packet was judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The engine stopped the program.
    #[error("the {engine} stopped the program: {stop}")]
    Stopped {
        /// Which engine.
        engine: &'static str,
        /// Why.
        stop: Stop,
    },
    /// The engines do not agree.
    #[error("the engines disagree: JIT {jit}, interpreter {interpreter}")]
    Disagree {
        /// What the JIT makes of the packet.
        jit: String,
        /// What the interpreter makes of it.
        interpreter: String,
    },
}

/// A packet that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Where.
    pub port: u32,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// What a run makes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Judged {
    Dropped,
    Sent(Sent),
    /// It goes to this multicast group.
    Grouped(u32),
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dropped => f.write_str("drops it"),
            Self::Sent(s) => write!(f, "sends {} to port {}", hex(&s.bytes), s.port),
            Self::Grouped(group) => write!(f, "sends it to group {group}"),
        }
    }
}

/// A program, loaded.
pub struct Device {
    /// Multicast groups.
    pub groups: Groups,
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

/// Between two packets: a microsecond.
const STEP_NS: u64 = 1_000;

impl Device {
    /// Links a program with other objects, has it verified and loads it.
    ///
    /// # Errors
    /// [`DeviceError`], by the step that failed.
    pub fn load(compiled: &Compiled, others: &[Vec<u8>], engine: Engine) -> Result<Self, DeviceError> {
        let mut objects = vec![Object::parse(&compiled.object)?];
        for other in others {
            objects.push(Object::parse(other)?);
        }
        let linked = link(&objects)?;
        let limits = Limits::default();
        let (verified, _) = verify(linked, &limits).map_err(|r| DeviceError::Refused(Box::new(r)))?;
        let load = |name, mode| -> Result<_, LoadError> {
            // The same numbers on every run: a test has to be repeatable.
            let options = EngineOptions { mode, map_bytes: 1 << 30, ..EngineOptions::default() };
            Ok((name, Program::load(&verified, &options)?))
        };
        let engines = match engine {
            Engine::Jit => vec![load("JIT", Mode::Jit)?],
            Engine::Interpreter => vec![load("interpreter", Mode::Interpreter)?],
            Engine::Both => vec![load("JIT", Mode::Jit)?, load("interpreter", Mode::Interpreter)?],
        };
        Ok(Self {
            groups: Groups::default(),
            engines,
            facts: Arc::new(compiled.facts.clone()),
            packet: Packet::with_minimum(MAX_HEADROOM as usize, MAX_HEADER_BYTES as usize, 0),
            info: VmInfo::unknown(InfoStatus::Missing),
            now_ns: STEP_NS,
        })
    }

    /// What the compiler tells about the program.
    #[must_use]
    pub fn facts(&self) -> Arc<Facts> {
        self.facts.clone()
    }

    /// A packet arrives; returns what leaves: for each copy of its multicast group, if the program sends it to one.
    ///
    /// # Errors
    /// [`RunError`] if an engine stops the program, or both do not agree.
    pub fn receive(&mut self, port: u32, bytes: &[u8]) -> Result<Vec<Sent>, RunError> {
        self.now_ns += STEP_NS;
        let group = match self.judge(port, bytes, None)? {
            Judged::Grouped(group) => group,
            Judged::Sent(sent) => return Ok(vec![sent]),
            Judged::Dropped => return Ok(Vec::new()),
        };
        let mut left = Vec::new();
        for copy in self.groups.copies(group) {
            if let Judged::Sent(sent) = self.judge(port, bytes, Some(copy))? {
                left.push(sent);
            }
        }
        Ok(left)
    }

    /// One run on every engine: for a packet, or for one copy of it.
    fn judge(&mut self, port: u32, bytes: &[u8], copy: Option<Replica>) -> Result<Judged, RunError> {
        let meta = Meta { input_port: port, timestamp_ns: self.now_ns, ..Meta::default() };
        let mut results = Vec::new();
        // The filter of `ebpf_model` has no ports: packets go on where they came.
        let stays = self.facts.architecture == Architecture::Ebpf;
        for (engine, program) in &mut self.engines {
            self.packet.reset(bytes, bytes.len() as u32);
            let outcome = match copy {
                None => program.run(&mut self.packet, &meta, &self.info),
                Some(copy) => program.run_copy(&mut self.packet, &meta, &self.info, copy),
            };
            if let Some(stop) = outcome.stopped {
                return Err(RunError::Stopped { engine, stop });
            }
            results.push(match outcome.verdict {
                Verdict::Pass => {
                    let mut out = self.packet.bytes().to_vec();
                    // What lies behind the copy follows unseen, as far as it was not cut off.
                    let unseen = bytes.get(MAX_HEADER_BYTES as usize..).unwrap_or_default();
                    out.extend(unseen);
                    out.truncate(outcome.total as usize);
                    Judged::Sent(Sent { port: if stays { port } else { outcome.output_port }, bytes: out })
                }
                _ if self.facts.replicates && outcome.output_action == action::REPLICATE => {
                    Judged::Grouped(outcome.output_port)
                }
                _ => Judged::Dropped,
            });
        }
        if let [jit, interpreter] = results.as_slice()
            && jit != interpreter
        {
            return Err(RunError::Disagree { jit: jit.to_string(), interpreter: interpreter.to_string() });
        }
        Ok(results.pop().unwrap_or(Judged::Dropped))
    }

    /// A map of the program, if it has one of this name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.engines.first().and_then(|(_, p)| p.maps()?.get(name))
    }

    /// Sets an entry in every engine.
    ///
    /// # Errors
    /// As the map's; [`MapError::NotFound`] if there is no such map.
    pub fn update(&mut self, map: &str, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        self.each(map, |m| m.update(key, value, Exists::Any))
    }

    /// Removes an entry in every engine.
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

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
