//! Parties with evidence, as tests have them.

use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use crate::attempt::{Seeds, Step};
use crate::binding::{Binding, NameDigest, Role, Subject};
use crate::checks::{Defect, with};
use crate::config::{Config, Now};
use crate::crypto::Curve;
use crate::error::{Awaited, HandshakeError};
use crate::evidence::{Judge, JudgeError, Judgement, Prover, ProverError};
use crate::initiator::Initiator;
use crate::key::StaticKey;
use crate::responder::Responder;
use crate::secret::Secret;
use crate::session::Session;
use crate::trust::Trust;

/// The image that honest VMs run: user VMs and P4 VMs the same one, which demands most of the handshake.
pub(super) const HONEST: u8 = 1;
/// An image of the attacker on genuine hardware.
pub(super) const HOSTILE: u8 = 9;

/// Hardware that attests which image runs: an authenticator with a key that only the hardware has.
fn attest(image: u8, data: &[u8; 64]) -> Vec<u8> {
    let tag = Sha256::digest([b"only hardware knows this".as_slice(), &[image], data].concat());
    [&[image], data.as_slice(), &tag].concat()
}

pub(super) struct Tee(pub(super) u8);

impl Prover for Tee {
    fn evidence(&self, data: &[u8; 64]) -> Result<Vec<u8>, ProverError> {
        Ok(attest(self.0, data))
    }
}

/// Hardware that fails.
pub(super) struct NoTee;

impl Prover for NoTee {
    fn evidence(&self, _: &[u8; 64]) -> Result<Vec<u8>, ProverError> {
        Err(ProverError("no device".to_owned()))
    }
}

/// Accepts genuine evidence of the honest image.
pub(super) struct HonestImage;

impl Judge for HonestImage {
    fn judge(&self, evidence: &[u8], data: &[u8; 64], _: u64) -> Result<Judgement, JudgeError> {
        if evidence == b"sample" {
            return Ok(Judgement::NotAttested);
        }
        if evidence != attest(HONEST, data) {
            return Err(JudgeError("it is another image's, or another exchange's".to_owned()));
        }
        Ok(Judgement::Attested("honest image".to_owned()))
    }
}

/// Evidence that the attacker has seen.
pub(super) type Loot = Arc<Mutex<Vec<Vec<u8>>>>;

/// Keeps all evidence that it sees, and accepts it.
pub(super) struct Thief(pub(super) Loot);

impl Judge for Thief {
    fn judge(&self, evidence: &[u8], _: &[u8; 64], _: u64) -> Result<Judgement, JudgeError> {
        self.0.lock().unwrap().push(evidence.to_vec());
        Ok(Judgement::Attested(String::new()))
    }
}

/// Presents what the thief took last.
pub(super) struct Fence(pub(super) Loot);

impl Prover for Fence {
    fn evidence(&self, data: &[u8; 64]) -> Result<Vec<u8>, ProverError> {
        Ok(self.0.lock().unwrap().last().cloned().unwrap_or_else(|| attest(HOSTILE, data)))
    }
}

pub(super) fn key(curve: Curve, seed: u64) -> StaticKey {
    StaticKey::on(curve, Secret::from_bytes(Sha256::digest(seed.to_le_bytes()).into()))
}

pub(super) const fn binding(tenant: u32, vm: u32) -> Binding {
    let (vm, digest) = (NameDigest([vm as u8; 32]), [tenant as u8; 32]);
    Binding { tenant: NameDigest(digest), subject: Subject::Vm(vm), configuration: digest }
}

/// A party with hardware, which demands hardware of its peer.
pub(super) fn attested(curve: Curve, binding: Binding, seed: u64) -> Config {
    Config::new(binding, key(curve, seed), Trust::attested())
        .with_prover(Arc::new(Tee(HONEST)))
        .with_judge(Arc::new(HonestImage))
}

pub(super) const fn at(steady_ms: u64) -> Now {
    Now { steady_ms, unix_s: 1_800_000_000 }
}

/// Either state machine.
#[derive(Debug)]
pub(super) enum Machine {
    Initiator(Initiator),
    Responder(Responder),
}

impl Machine {
    /// A machine, and its first message.
    pub(super) fn new(role: Role, config: Config, seed: u64, now: Now) -> (Self, Option<Vec<u8>>) {
        match role {
            Role::Initiator => {
                let (machine, first) = Initiator::seeded(config, Seeds::repeatable(seed), now).unwrap();
                (Self::Initiator(machine), Some(first))
            }
            Role::Responder => (Self::Responder(Responder::seeded(config, Seeds::repeatable(seed))), None),
        }
    }

    pub(super) fn handle(&mut self, bytes: &[u8], now: Now) -> Step {
        match self {
            Self::Initiator(machine) => machine.handle(bytes, now),
            Self::Responder(machine) => machine.handle(bytes, now),
        }
    }

    pub(super) fn poll(&mut self, now: Now) -> Step {
        match self {
            Self::Initiator(machine) => machine.poll(now),
            Self::Responder(machine) => machine.poll(now),
        }
    }

    pub(super) fn used(&mut self) {
        match self {
            Self::Initiator(_) => {}
            Self::Responder(machine) => machine.used(),
        }
    }

    pub(super) fn awaits(&self) -> Awaited {
        match self {
            Self::Initiator(machine) => machine.awaits(),
            Self::Responder(machine) => machine.awaits(),
        }
    }
}

/// A machine with what came of it.
#[derive(Debug)]
pub(super) struct Party {
    pub(super) machine: Machine,
    defect: Defect,
    role: Role,
    pub(super) session: Option<Session>,
    pub(super) error: Option<HandshakeError>,
}

impl Party {
    pub(super) fn new(role: Role, config: Config, seed: u64, now: Now) -> (Self, Option<Vec<u8>>) {
        Self::with_defect(Defect::None, role, config, seed, now)
    }

    pub(super) fn with_defect(
        defect: Defect,
        role: Role,
        config: Config,
        seed: u64,
        now: Now,
    ) -> (Self, Option<Vec<u8>>) {
        let (machine, first) = with(defect, role, || Machine::new(role, config, seed, now));
        (Self { machine, defect, role, session: None, error: None }, first)
    }

    /// Keeps the result of a step. Returns what it sends.
    pub(super) fn take(&mut self, step: Step) -> Option<Vec<u8>> {
        match step {
            Step::Wait => None,
            Step::Send(sent) => Some(sent),
            Step::Done { session, send } => {
                assert!(self.session.is_none() && self.error.is_none(), "a second result");
                self.session = Some(*session);
                send
            }
            Step::Failed { error, send } => {
                let unused = matches!(error, HandshakeError::TimedOut { waiting_for: Awaited::Use, .. });
                assert!(self.session.is_some() == unused && self.error.is_none(), "a second result");
                assert!(error.to_string().len() > 20, "an error without an explanation: {error}");
                self.error = Some(error);
                send
            }
        }
    }

    pub(super) fn handle(&mut self, bytes: &[u8], now: Now) -> Option<Vec<u8>> {
        let step = with(self.defect, self.role, || self.machine.handle(bytes, now));
        let step = self.release_early(step);
        self.take(step)
    }

    pub(super) fn poll(&mut self, now: Now) -> Option<Vec<u8>> {
        let step = with(self.defect, self.role, || self.machine.poll(now));
        self.take(step)
    }

    /// Takes the session of an initiator before it is confirmed, if that is its defect.
    fn release_early(&mut self, step: Step) -> Step {
        match (step, &mut self.machine) {
            (Step::Send(sent), Machine::Initiator(machine)) if self.defect == Defect::EarlyRelease => {
                match machine.unconfirmed() {
                    Some(session) => Step::Done { session, send: Some(sent) },
                    None => Step::Send(sent),
                }
            }
            (step, _) => step,
        }
    }
}

/// All keys of a session.
pub(super) fn keys(session: &Session) -> [[u8; 32]; 3] {
    let keys = session.keys();
    [&keys.records, &keys.to_p4vm, &keys.from_p4vm].map(|key| *key.expose())
}

/// Checks that two sessions are the two ends of one.
pub(super) fn assert_agreed(a: &Session, b: &Session) {
    assert_eq!(a.transcript(), b.transcript());
    assert_eq!(keys(a), keys(b));
    assert_eq!((a.epoch(), a.binding()), (b.epoch(), b.binding()));
    assert_ne!(a.role(), b.role());
}
