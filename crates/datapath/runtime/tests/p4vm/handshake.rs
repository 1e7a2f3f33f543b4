//! Handshakes of a running P4 VM with an agent.

use crate::programs;
use crate::rig::{FIRST, INGRESS, Rig, SECOND, THIRD, hello, spawn_with_evidence, wait_for};
use crate::tests::{Test, WEB};
use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_abi::info::{InfoStatus, Snapshot};
use p4shield_abi::{info_page, log_page};
use p4shield_channel::{HandshakePage, PageReader, PageWriter, SharedMemory};
use p4shield_control::{AgentDemand, ClientError, HandshakeStatus, Request, VmStatus};
use p4shield_handshake::{
    Config, Initiator, Judge, JudgeError, Judgement, Session, StaticKey, Step, Terms, Trust,
};
use p4shield_runtime::evidence::{GRANTED, REFUSED};
use p4shield_seal::{Epoch, InfoSealer, LogOpener, Now, TenantKey};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("keys_of_a_session_open_information_and_log", keys_of_a_session_open_information_and_log),
    ("a_renewed_session_loses_neither_information_nor_log", a_renewed_session_loses_nothing),
    ("evidence_of_the_machine_reaches_the_agent", evidence_of_the_machine_reaches_the_agent),
    ("a_vm_with_a_handshake_takes_no_key_of_the_host", a_vm_with_a_handshake_takes_no_key_of_the_host),
];

/// The user VM's side: its pages, and its agent's key.
struct UserVm {
    handshake: HandshakePage,
    info: PageWriter,
    log: PageReader,
    files: [OwnedFd; 3],
    key: StaticKey,
}

impl UserVm {
    fn new() -> Self {
        let page = |name, len| SharedMemory::create_memfd(name, len).unwrap();
        let pages = [
            page("info", info_page::INFO_PAGE_SIZE),
            page("log", log_page::LOG_PAGE_SIZE),
            page("handshake", HANDSHAKE_PAGE_SIZE),
        ];
        let files = pages.each_ref().map(|page| page.fd().unwrap().try_clone_to_owned().unwrap());
        let [info, log, handshake] = pages;
        let (magic, slots) = (info_page::INFO_MAGIC, info_page::INFO_SLOTS);
        Self {
            handshake: HandshakePage::of_user_vm(handshake).unwrap(),
            info: PageWriter::new(info, magic, slots, info_page::INFO_SLOT_STRIDE).unwrap(),
            log: PageReader::new(log, log_page::LOG_MAGIC, log_page::LOG_SLOTS, log_page::LOG_SLOT_STRIDE)
                .unwrap(),
            files,
            key: StaticKey::random().unwrap(),
        }
    }

    fn announce(&self, rig: &mut Rig) {
        let demand = AgentDemand { key: Some(self.key.public().0), without_evidence: true };
        let request = Request::SetVm {
            vm: 0,
            name: "web".into(),
            info: Some(FIRST),
            log: Some(SECOND),
            handshake: Some((THIRD, demand)),
            keys: None,
        };
        rig.ask(request, &self.files.each_ref()).unwrap();
    }

    fn config(&self, trust: Trust) -> Config {
        let terms = Terms {
            age_limit_ms: hello().age_limit_ms,
            passes_without_program: false,
            agent_key: Some(self.key.public()),
        };
        Config::new(terms.binding(WEB.tenant, WEB.vm), self.key.clone(), trust)
    }

    /// Runs a handshake to its end.
    fn agree(&mut self, config: Config) -> Result<Session, String> {
        let start = Instant::now();
        let now = || p4shield_handshake::Now {
            steady_ms: u64::try_from(start.elapsed().as_millis()).unwrap(),
            unix_s: Now::read().real_ns / 1_000_000_000,
        };
        let (mut initiator, first) = Initiator::start(config, now()).unwrap();
        self.handshake.send(&first).unwrap();
        loop {
            let mut steps = vec![initiator.poll(now())];
            if let Ok(Some(message)) = self.handshake.receive() {
                steps.push(initiator.handle(message, now()));
            }
            for step in steps {
                match step {
                    Step::Wait => {}
                    Step::Send(message) => self.handshake.send(&message).unwrap(),
                    Step::Done { session, .. } => return Ok(*session),
                    Step::Failed { error, .. } => return Err(error.to_string()),
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Publishes information under a session's key, and waits until the P4 VM has accepted it.
    fn publish(&mut self, rig: &mut Rig, session: &Session) {
        let mut sealer = InfoSealer::new(&key(session), &WEB, Epoch::from_session(session.epoch()));
        let accepted = |rig: &mut Rig| web(rig).info_tally[0];
        let before = accepted(rig);
        let mut snapshot = Snapshot::default();
        snapshot.taken_ns = Now::read().real_ns;
        let sealed = sealer.seal(&snapshot);
        self.info.publish(sealed.epoch, sealed.counter, sealed.bytes).unwrap();
        wait_for("the snapshot", || accepted(rig) > before);
    }

    /// Returns the epoch of a log record that comes from now on, once one opens with the session's key.
    fn log_epoch(&mut self, session: &Session) -> u64 {
        let mut opener = LogOpener::new(&key(session), &WEB);
        let mut epoch = None;
        let mut record = vec![0; self.log.room()];
        wait_for("a record under the session's key", || {
            let Ok(Some(p)) = self.log.newest(&mut record) else { return false };
            let opened = opener.open(p.epoch, p.counter, &record[..p.len]).is_ok();
            epoch = opened.then_some(p.epoch);
            opened
        });
        epoch.unwrap()
    }
}

fn key(session: &Session) -> TenantKey {
    TenantKey::from_bytes(*session.records_key().expose())
}

fn web(rig: &mut Rig) -> VmStatus {
    rig.status().vms.remove(0)
}

fn handshakes(rig: &mut Rig) -> HandshakeStatus {
    web(rig).handshake.unwrap()
}

fn keys_of_a_session_open_information_and_log() {
    let mut rig = Rig::start(hello());
    let mut vm = UserVm::new();
    vm.announce(&mut rig);
    rig.load(INGRESS, programs::PASS).unwrap();
    let before = web(&mut rig);
    assert_eq!((before.keys, before.log_records), (None, 0), "no key, no log");
    assert_eq!(before.info, InfoStatus::Missing as u8);
    let session = vm.agree(vm.config(Trust::unverified())).unwrap();
    vm.publish(&mut rig, &session);
    assert_eq!(vm.log_epoch(&session), session.epoch());
    let status = handshakes(&mut rig);
    let agreed = status.session.unwrap();
    assert_eq!((agreed.transcript, agreed.agent), (*session.transcript(), vm.key.public().0));
    assert!(agreed.is_agent_known && !agreed.presented_evidence);
    assert_eq!((status.agreed, status.failed, status.error), (1, 0, None));
    // The program runs on: the session changed the pages only.
    assert!(web(&mut rig).directions[0].program.is_some());
}

fn a_renewed_session_loses_nothing() {
    let mut rig = Rig::start(hello());
    let mut vm = UserVm::new();
    vm.announce(&mut rig);
    let first = vm.agree(vm.config(Trust::unverified())).unwrap();
    vm.publish(&mut rig, &first);
    let epoch = vm.log_epoch(&first);
    wait_for("the end of the handshake", || {
        web(&mut rig).keys.is_some_and(|keys| keys.agent_follows && keys.log_follows)
    });
    let second = vm.agree(vm.config(Trust::unverified())).unwrap();
    assert!(second.epoch() > first.epoch(), "information of the first session is older");
    // The log has the old key until the agent has used the new one, and keeps its epoch.
    assert_eq!(vm.log_epoch(&first), epoch);
    vm.publish(&mut rig, &second);
    assert_eq!(vm.log_epoch(&second), epoch);
    let [accepted, forged, replayed, _] = web(&mut rig).info_tally;
    assert_eq!((accepted, forged, replayed), (2, 0, 0));
    assert_eq!(handshakes(&mut rig).agreed, 2);
}

/// Accepts evidence over the right report data.
struct Collected;

impl Judge for Collected {
    fn judge(&self, evidence: &[u8], data: &[u8; 64], _: u64) -> Result<Judgement, JudgeError> {
        match evidence.strip_prefix(b"signed:") {
            Some(signed) if signed == data => Ok(Judgement::Attested("the machine".to_owned())),
            _ => Err(JudgeError("it is over other data".to_owned())),
        }
    }
}

fn evidence_of_the_machine_reaches_the_agent() {
    let (socket, mut machine) = spawn_with_evidence();
    let mut rig = Rig::greet(socket, hello());
    let mut vm = UserVm::new();
    vm.announce(&mut rig);
    let answers = std::thread::spawn(move || {
        let request = machine.receive().unwrap().bytes;
        machine.send(&[&[REFUSED][..], b"the device is busy"].concat(), &[]).unwrap();
        let again = machine.receive().unwrap().bytes;
        assert_ne!(request, again, "each handshake has report data of its own");
        machine.send(&[&[GRANTED][..], b"signed:", &again].concat(), &[]).unwrap();
    });
    let demanding = |vm: &UserVm| vm.config(Trust::attested()).with_judge(Arc::new(Collected));
    let refused = vm.agree(demanding(&vm)).unwrap_err();
    assert!(refused.contains("it cannot collect evidence"), "{refused}");
    assert!(handshakes(&mut rig).error.unwrap().contains("the device is busy"));
    let session = vm.agree(demanding(&vm)).unwrap();
    assert_eq!(session.standing().claims(), Some("the machine"));
    assert!(handshakes(&mut rig).session.unwrap().presented_evidence);
    answers.join().unwrap();
}

fn a_vm_with_a_handshake_takes_no_key_of_the_host() {
    let mut rig = Rig::start(hello());
    let mut vm = UserVm::new();
    vm.announce(&mut rig);
    let set = |rig: &mut Rig| {
        let request = Request::SetKeys { vm: 0, key: FIRST, window_ms: 0 };
        rig.ask(request, &[&crate::rig::memory("key", &[7; 32])])
    };
    let refused =
        |result| matches!(result, Err(ClientError::Failed(why)) if why.contains("come from handshakes"));
    assert!(refused(set(&mut rig)));
    let session = vm.agree(vm.config(Trust::unverified())).unwrap();
    vm.publish(&mut rig, &session);
    assert!(refused(set(&mut rig)));
    assert_eq!(web(&mut rig).keys.unwrap().current, key(&session).id().0);
}
