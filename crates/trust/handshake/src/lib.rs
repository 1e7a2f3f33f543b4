//! The handshake between a user VM or a workstation and a P4 VM.
//!
//! The cloud's host carries every message and may read, change, keep, repeat and invent any of them. At the
//! end both parties have the same keys and know with whom, or each has an error with a name.
//!
//! * [`Initiator`] (user VM or workstation) and [`Responder`] (P4 VM): the two state machines. They have no
//!   I/O, no clock and no thread: the caller passes messages and times, and sends what a [`Step`] contains.
//! * [`Binding`]: tenant, VM and configuration that a session is for; part of everything that is agreed.
//!   [`Terms`]: what of the P4 VM's configuration the agent of a VM has to agree to.
//! * [`Prover`], [`Judge`] and [`Trust`]: who presents evidence, who judges it, and what a party demands of
//!   its peer. This crate knows no kind of evidence.
//! * [`Session`]: keys, epoch, transcript and the peer's standing, with the time for the next handshake.
//! * [`stream`]: messages on a TCP or vsock connection. In shared memory, `p4shield-channel` has the
//!   handshake page. [`StreamSealer`] and [`StreamOpener`] seal what follows the handshake on a stream.
//!
//! # Protocol
//!
//! Messages 1 to 3 are `Noise_XX_25519_AESGCM_SHA256`, from the crate `snow`. Messages 4 and 5 present each
//! party's evidence under the keys of that exchange, and message 6 confirms. `docs/explanation/handshake.md`
//! has the messages and what each party checks, decision 037 the reasons.
//!
//! # Hostile messages
//!
//! A message that is not the expected one, or does not authenticate, is ignored and counted
//! ([`Ignored`]); the handshake goes on until its time limit. Only the peer with whom Noise agreed on keys
//! can end it earlier, and then it is that peer's own handshake.

#![forbid(unsafe_code)]

mod attempt;
mod binding;
#[cfg(not(test))]
mod checks;
#[cfg(test)]
#[path = "tests/defects.rs"]
mod checks;
mod config;
mod crypto;
mod error;
mod evidence;
pub mod fuzz;
mod initiator;
mod key;
mod message;
mod noise;
mod responder;
mod schedule;
mod sealed_stream;
mod secret;
mod session;
pub mod stream;
mod terms;
#[cfg(test)]
mod tests;
mod trust;

pub use attempt::{AttemptId, Step};
pub use binding::{Binding, NameDigest, Role, Subject};
pub use config::{Config, Limits, Now};
pub use error::{Awaited, HandshakeError, Ignored, RefusalReason};
pub use evidence::{Judge, JudgeError, Judgement, Prover, ProverError, Standing};
pub use initiator::Initiator;
pub use key::{PublicKey, StaticKey};
pub use message::{EVIDENCE_LIMIT, MESSAGE_LIMIT};
pub use responder::Responder;
pub use sealed_stream::{CONTENTS_LIMIT, SealedStreamError, StreamOpener, StreamSealer};
pub use secret::{KEY_SIZE, Secret};
pub use session::{Renewal, Session, SessionLimits};
pub use terms::Terms;
pub use trust::Trust;
