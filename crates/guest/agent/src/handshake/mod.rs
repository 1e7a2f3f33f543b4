//! Handshakes of the agent with the P4 VM, through their handshake page.
//!
//! The publisher's loop polls [`Handshaker`] at each tick. A session gives the key that the agent seals with
//! and that the auditor reads: the agent writes it to the key file of the user VM, whose memory the tenant
//! trusts, so that the auditor follows it as it follows any other key.

mod judge;

use std::path::Path;

use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_channel::HandshakePage;
use p4shield_handshake::{Config, HandshakeError, Initiator, Now, Session, StaticKey, Step, Terms, Trust};
use p4shield_seal::TenantKey;

use crate::config::{HandshakeConfig, VmConfig};
use crate::error::AgentError;
use crate::page::{PageMemory, PageUse, PageWatch};
use crate::session_note::SessionNote;
use judge::PolicyJudge;

/// Pause between the end of a handshake and the next one, milliseconds. A host that damages the page costs at
/// most one handshake in this time.
const PAUSE_MS: u64 = 1_000;

/// The agent's handshakes.
pub(crate) struct Handshaker {
    page: HandshakePage<PageMemory>,
    watch: PageWatch,
    config: Config,
    attempt: Option<Initiator>,
    /// When the next handshake may begin, by the steady clock.
    not_before_ms: u64,
    session: Option<AgreedSession>,
    lowest_epoch: u64,
    agreed: u64,
    failed: u64,
    error: Option<String>,
}

/// What is remembered of a session, whose key is elsewhere.
struct AgreedSession {
    session: Box<Session>,
    /// The P4 VM's last message. While it is on the page, the P4 VM has not restarted.
    confirmation: Vec<u8>,
}

/// The handshakes in the agent's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HandshakeStatus {
    /// Sessions that were agreed on.
    pub agreed: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Reason why the last one failed, unless one has succeeded since.
    pub error: Option<String>,
    /// The present session.
    pub session: Option<SessionNote>,
}

impl Handshaker {
    /// Opens the page, the policy and the agent's key. Sessions have at least the epoch `lowest_epoch`.
    pub(crate) fn new(
        vm: &VmConfig,
        config: &HandshakeConfig,
        lowest_epoch: u64,
    ) -> Result<Self, AgentError> {
        let (memory, watch) = PageWatch::open(&config.page, HANDSHAKE_PAGE_SIZE, PageUse::Read)?;
        let judge = PolicyJudge::load(&config.policy)?;
        let trust = if judge.accepts_samples() { Trust::unverified() } else { Trust::attested() };
        let key = match &config.agent_key {
            Some(path) => static_key(path)?,
            None => StaticKey::random().map_err(AgentError::Random)?,
        };
        let terms = Terms {
            age_limit_ms: config.age_limit_ms,
            passes_without_program: config.passes_without_program,
            agent_key: config.agent_key.as_ref().map(|_| key.public()),
        };
        let binding = terms.binding(&vm.tenant, &vm.name);
        Ok(Self {
            page: HandshakePage::of_user_vm(memory)?,
            watch,
            config: Config::new(binding, key, trust).with_judge(judge.into()),
            attempt: None,
            not_before_ms: 0,
            session: None,
            lowest_epoch,
            agreed: 0,
            failed: 0,
            error: None,
        })
    }

    /// Continues a handshake, or begins one if it is due. Returns a new session.
    pub(crate) fn step(&mut self, now: p4shield_seal::Now) -> Option<&Session> {
        let reopened = self.reopen(now);
        let now = Now { steady_ms: now.mono_ns / 1_000_000, unix_s: now.real_ns / 1_000_000_000 };
        if self.attempt.is_none() {
            let is_due = self.is_due(now, reopened) && now.steady_ms >= self.not_before_ms;
            if is_due {
                self.begin(now);
            }
            return None;
        }
        let mut agreed = false;
        if let Ok(Some(message)) = self.page.receive() {
            let message = message.to_vec();
            let step = self.attempt.as_mut().map_or(Step::Wait, |attempt| attempt.handle(&message, now));
            agreed = self.apply(step, &message, now);
        }
        let step = self.attempt.as_mut().map_or(Step::Wait, |attempt| attempt.poll(now));
        agreed |= self.apply(step, &[], now);
        self.session.as_ref().filter(|_| agreed).map(|agreed| &*agreed.session)
    }

    /// Reopens a page that a restarted host daemon has created again. Returns whether it did.
    fn reopen(&mut self, now: p4shield_seal::Now) -> bool {
        let Some(memory) = self.watch.recreated(now.mono_ns) else { return false };
        match HandshakePage::of_user_vm(memory) {
            Ok(page) => {
                self.page = page;
                true
            }
            Err(_) => false,
        }
    }

    /// Whether a handshake is due: there is no session, it is too old, or the P4 VM has restarted.
    fn is_due(&mut self, now: Now, reopened: bool) -> bool {
        let Some(agreed) = &self.session else { return true };
        // The host may write anything there: that costs a handshake, after the pause.
        let restarted = self.page.receive().is_ok_and(|m| m.is_some_and(|m| m != agreed.confirmation));
        let is_due = restarted || reopened || agreed.session.rekey_due(now.steady_ms, 0).is_some();
        if is_due {
            self.session = None;
        }
        is_due
    }

    fn begin(&mut self, now: Now) {
        // What the P4 VM wrote before is no answer to this attempt.
        let _ = self.page.receive();
        match Initiator::start(self.config.clone().with_lowest_epoch(self.lowest_epoch), now) {
            Ok((attempt, first)) => {
                self.attempt = Some(attempt);
                self.send(&first);
            }
            Err(error) => self.fail(&error, now),
        }
    }

    /// Does what a step says. Returns whether there is a new session.
    fn apply(&mut self, step: Step, received: &[u8], now: Now) -> bool {
        match step {
            Step::Wait => false,
            Step::Send(message) => {
                self.send(&message);
                false
            }
            Step::Done { session, send } => {
                send.iter().for_each(|message| self.send(message));
                self.agree(session, received, now);
                true
            }
            Step::Failed { error, send } => {
                send.iter().for_each(|message| self.send(message));
                self.fail(&error, now);
                false
            }
        }
    }

    /// Sends a message. A page that cannot be written costs the attempt, which ends at its time limit.
    fn send(&mut self, message: &[u8]) {
        if let Err(error) = self.page.send(message) {
            self.error = Some(format!("cannot write the handshake page: {error}"));
        }
    }

    fn agree(&mut self, session: Box<Session>, confirmation: &[u8], now: Now) {
        let note = SessionNote::of(&session);
        tracing::info!(
            event = "session_agreed",
            transcript = note.transcript,
            p4vm = note.p4vm,
            "agreed on a key with the P4 VM: {}",
            note.standing
        );
        self.attempt = None;
        self.agreed += 1;
        self.error = None;
        self.not_before_ms = now.steady_ms.saturating_add(PAUSE_MS);
        self.lowest_epoch = session.epoch().saturating_add(1);
        self.session = Some(AgreedSession { session, confirmation: confirmation.to_vec() });
    }

    fn fail(&mut self, error: &HandshakeError, now: Now) {
        let text = error.to_string();
        // A host that keeps messages causes the same error again and again.
        if self.error.as_ref() != Some(&text) {
            tracing::warn!(
                event = "handshake_failed",
                error = text,
                "no key was agreed on with the P4 VM; the agent tries again"
            );
        }
        self.attempt = None;
        self.failed += 1;
        self.error = Some(text);
        self.not_before_ms = now.steady_ms.saturating_add(PAUSE_MS);
    }

    pub(crate) fn status(&self) -> HandshakeStatus {
        HandshakeStatus {
            agreed: self.agreed,
            failed: self.failed,
            error: self.error.clone(),
            session: self.session.as_ref().map(|agreed| SessionNote::of(&agreed.session)),
        }
    }
}

/// Reads the agent's static key, a file like a tenant's key.
fn static_key(path: &Path) -> Result<StaticKey, AgentError> {
    let key = TenantKey::load(path)?;
    Ok(StaticKey::from_secret(p4shield_handshake::Secret::from_bytes(*key.expose())))
}
