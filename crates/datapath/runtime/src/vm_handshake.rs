//! Handshakes of the P4 VM with the agent of a user VM, through their handshake page.
//!
//! The control thread polls the page between two requests of the host: a handshake never delays a packet.

use p4shield_channel::{HandshakePage, SharedMemory};
use p4shield_control::{AgentDemand, HandshakeStatus, SessionStatus};
use p4shield_handshake::{
    Awaited, Binding, Config, HandshakeError, Now, Prover, PublicKey, Responder, Session, StaticKey, Step,
    Trust,
};
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks at the page while an attempt is under way.
const BUSY_TICK: Duration = Duration::from_millis(2);
/// Time between two looks at the page otherwise: an agent waits for so long at its start.
const IDLE_TICK: Duration = Duration::from_millis(50);
/// Longest error in the status, bytes.
const MAX_ERROR: usize = 240;

/// The P4 VM's own part in all its handshakes.
pub(crate) struct Own {
    /// The P4 VM's key, made at its start: evidence binds it, and it outlives no restart.
    pub(crate) key: StaticKey,
    /// What collects evidence about this P4 VM, if it runs in a TEE.
    pub(crate) prover: Option<Arc<dyn Prover>>,
}

/// A VM whose keys come from handshakes.
pub(crate) struct HandshakingVm {
    pub(crate) handshake: VmHandshake,
    /// Info page and log page, until the first session.
    pub(crate) pages: Option<(Option<SharedMemory>, Option<SharedMemory>)>,
}

/// The handshakes of one user VM.
pub(crate) struct VmHandshake {
    page: HandshakePage,
    config: Config,
    responder: Responder,
    has_agent_key: bool,
    presents_evidence: bool,
    /// The epoch that the next session has at least.
    lowest_epoch: u64,
    agreed: u64,
    failed: u64,
    ignored: u64,
    error: Option<String>,
    session: Option<AgreedSession>,
}

/// What is remembered of a session.
struct AgreedSession {
    transcript: [u8; 32],
    agent: [u8; 32],
    began_ms: u64,
}

impl VmHandshake {
    /// Prepares the P4 VM's end of a page. The next session has at least the epoch `lowest_epoch`.
    ///
    /// # Errors
    /// The page has the wrong size, or the system returns no random bytes.
    pub(crate) fn new(
        memory: SharedMemory,
        binding: Binding,
        demand: AgentDemand,
        own: &Own,
        lowest_epoch: u64,
    ) -> Result<Self, String> {
        let mut page = HandshakePage::of_p4_vm(memory).map_err(|e| e.to_string())?;
        // An agent with a session learns that this P4 VM has none. A page that cannot be written shows later.
        let _ = page.send(&[]);
        let trust = demand.key.map_or(Trust::unverified(), |key| Trust::pinned(PublicKey(key)));
        let trust = if demand.without_evidence { trust.and_unverified() } else { trust };
        let config = Config::new(binding, own.key.clone(), trust);
        let config = match &own.prover {
            Some(prover) => config.with_prover(Arc::clone(prover)),
            None => config,
        };
        let responder = responder(&config, lowest_epoch)?;
        Ok(Self {
            page,
            config,
            responder,
            has_agent_key: demand.key.is_some(),
            presents_evidence: own.prover.is_some(),
            lowest_epoch,
            agreed: 0,
            failed: 0,
            ignored: 0,
            error: None,
            session: None,
        })
    }

    /// Handles what came from the agent. Returns a session that was agreed on.
    pub(crate) fn step(&mut self, now: Now) -> Option<Box<Session>> {
        let mut agreed = None;
        // A page that is damaged or half written has no message: the agent repeats it.
        if let Ok(Some(message)) = self.page.receive() {
            let step = self.responder.handle(message, now);
            self.apply(step, now, &mut agreed);
        }
        let step = self.responder.poll(now);
        self.apply(step, now, &mut agreed);
        agreed
    }

    /// Whether the agent has yet to use the session that was agreed on last.
    pub(crate) fn awaits_use(&self) -> bool {
        self.responder.awaits() == Awaited::Use
    }

    /// The agent has used the session: the P4 VM is ready for the next handshake.
    pub(crate) fn used(&mut self) {
        self.responder.used();
        self.renew();
    }

    /// The session that was agreed on cannot be used, because of `error`.
    pub(crate) fn note_unusable(&mut self, error: &str) {
        self.error = Some(bounded(format!("the session cannot be used: {error}")));
    }

    /// Returns the time until the next look at the page.
    pub(crate) fn tick(&self) -> Duration {
        match self.responder.awaits() {
            Awaited::Identity | Awaited::Evidence => BUSY_TICK,
            _ => IDLE_TICK,
        }
    }

    pub(crate) fn status(&self, now: Now) -> HandshakeStatus {
        let session = |s: &AgreedSession| SessionStatus {
            transcript: s.transcript,
            agent: s.agent,
            is_agent_known: self.has_agent_key,
            presented_evidence: self.presents_evidence,
            age_s: now.steady_ms.saturating_sub(s.began_ms) / 1000,
        };
        HandshakeStatus {
            agreed: self.agreed,
            failed: self.failed,
            ignored: self.ignored,
            error: self.error.clone(),
            session: self.session.as_ref().map(session),
        }
    }

    fn apply(&mut self, step: Step, now: Now, agreed: &mut Option<Box<Session>>) {
        let send = match step {
            Step::Wait => None,
            Step::Send(message) => Some(message),
            Step::Done { session, send } => {
                self.agree(&session, now);
                *agreed = Some(session);
                send
            }
            Step::Failed { error, send } => {
                self.fail(&error);
                send
            }
        };
        // A message that does not fit the page, or a page that was cut, costs this attempt: it times out.
        if let Some(Err(error)) = send.map(|message| self.page.send(&message)) {
            self.error = Some(bounded(format!("cannot write the handshake page: {error}")));
        }
        if self.responder.awaits() == Awaited::Nothing {
            self.renew();
        }
    }

    fn agree(&mut self, session: &Session, now: Now) {
        self.agreed += 1;
        self.error = None;
        self.lowest_epoch = session.epoch().saturating_add(1);
        self.session = Some(AgreedSession {
            transcript: *session.transcript(),
            agent: session.peer().0,
            began_ms: now.steady_ms,
        });
    }

    fn fail(&mut self, error: &HandshakeError) {
        self.failed += 1;
        self.error = Some(bounded(error.to_string()));
    }

    /// Prepares for the next attempt. Without random bytes the present responder stays, which is over.
    fn renew(&mut self) {
        self.ignored = self.ignored.saturating_add(self.responder.ignored().0);
        match responder(&self.config, self.lowest_epoch) {
            Ok(responder) => self.responder = responder,
            Err(error) => self.error = Some(bounded(error)),
        }
    }
}

fn responder(config: &Config, lowest_epoch: u64) -> Result<Responder, String> {
    Responder::new(config.clone().with_lowest_epoch(lowest_epoch)).map_err(|e| e.to_string())
}

/// Cuts a text that a peer may have prolonged.
fn bounded(mut text: String) -> String {
    if text.len() > MAX_ERROR {
        let end = (0..=MAX_ERROR).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}
