//! A handshake through shared memory and through a stream, and what is sealed with its session.

use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_abi::info::Snapshot;
use p4shield_abi::log_page::LogRecord;
use p4shield_channel::{HandshakePage, Memory, SharedMemory};
use p4shield_handshake::stream::{Decoder, frame};
use p4shield_handshake::{Config, Initiator, Now, Responder, Session, StaticKey, Step, Terms, Trust};
use p4shield_seal::{
    AgeLimit, Continuity, Epoch, Identity, InfoOpener, InfoSealer, LogKey, LogOpener, LogSealer, TenantKey,
};

const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };
const TERMS: Terms = Terms { age_limit_ms: 500, passes_without_program: true, agent_key: None };

const fn at(steady_ms: u64) -> Now {
    Now { steady_ms, unix_s: 1_800_000_000 }
}

/// Configurations of two parties that know each other's keys.
fn configs() -> (Config, Config) {
    let (i, r) = (StaticKey::random().expect("random"), StaticKey::random().expect("random"));
    let (of_i, of_r) = (Trust::pinned(r.public()), Trust::pinned(i.public()));
    let binding = TERMS.binding(WEB.tenant, WEB.vm);
    (Config::new(binding, i, of_i), Config::new(binding, r, of_r))
}

/// Keeps the session of a step, and returns what to send.
fn take(step: Step, session: &mut Option<Session>) -> Option<Vec<u8>> {
    match step {
        Step::Wait => None,
        Step::Send(sent) => Some(sent),
        Step::Done { session: done, send } => {
            *session = Some(*done);
            send
        }
        Step::Failed { error, .. } => panic!("{error}"),
    }
}

/// A host that wipes the page at each of these times, in milliseconds.
fn through_a_page(lowest: (u64, u64), wipes: &[u64]) -> (Session, Session) {
    let memory = SharedMemory::create_memfd("handshake", HANDSHAKE_PAGE_SIZE).expect("memory");
    let mut vm = HandshakePage::of_user_vm(memory.map_again().expect("memory")).expect("it fits");
    let mut p4vm = HandshakePage::of_p4_vm(memory.map_again().expect("memory")).expect("it fits");
    let (of_i, of_r) = configs();
    let (mut i, first) = Initiator::start(of_i.with_lowest_epoch(lowest.0), at(0)).expect("random bytes");
    let mut r = Responder::new(of_r.with_lowest_epoch(lowest.1)).expect("random bytes");
    vm.send(&first).expect("it fits");
    let (mut agent, mut runtime) = (None, None);
    for ms in (0..9_000).step_by(10) {
        if wipes.contains(&ms) {
            memory.copy_in(0, &vec![0; HANDSHAKE_PAGE_SIZE]);
        }
        let mut answers = vec![take(r.poll(at(ms)), &mut runtime)];
        if let Ok(Some(message)) = p4vm.receive() {
            answers.push(take(r.handle(message, at(ms)), &mut runtime));
        }
        answers.iter().flatten().for_each(|answer| p4vm.send(answer).expect("it fits"));
        let mut answers = vec![take(i.poll(at(ms)), &mut agent)];
        if let Ok(Some(message)) = vm.receive() {
            answers.push(take(i.handle(message, at(ms)), &mut agent));
        }
        answers.iter().flatten().for_each(|answer| vm.send(answer).expect("it fits"));
        if agent.is_some() {
            r.used();
        }
    }
    (agent.expect("a session"), runtime.expect("a session"))
}

fn key(session: &Session) -> TenantKey {
    TenantKey::from_bytes(*session.records_key().expose())
}

#[test]
fn a_handshake_survives_a_page_that_is_wiped() {
    for wipes in [vec![], vec![0], vec![0, 260, 520], (0..3000).step_by(130).collect()] {
        let (agent, runtime) = through_a_page((3, 4), &wipes);
        assert_eq!(agent.transcript(), runtime.transcript(), "wiped at {wipes:?}");
    }
}

#[test]
fn sessions_seal_information_and_log() {
    let now = p4shield_seal::Now::read();
    // The P4 VM starts: the agent proposes an epoch above all that it has seen.
    let (agent, runtime) = through_a_page((41, 0), &[]);
    let mut info = InfoSealer::new(&key(&agent), &WEB, Epoch::from_session(agent.epoch()));
    let mut opener = InfoOpener::new(&key(&runtime), &WEB, AgeLimit::default());
    let mut snapshot = Snapshot::default();
    snapshot.taken_ns = now.real_ns;
    let sealed = info.seal(&snapshot);
    assert_eq!(sealed.epoch, 41);
    opener.open(sealed.epoch, sealed.counter, sealed.bytes, now).expect("it is genuine");
    let mut log = LogSealer::new(&key(&runtime), &WEB, Epoch::from_session(runtime.epoch()));
    let mut auditor = LogOpener::new(&key(&agent), &WEB);
    let record = log.seal(&LogRecord::default());
    let opened = auditor.open(record.epoch, record.counter, record.bytes).expect("it is genuine");
    assert_eq!(opened.continuity, Continuity::First);
    let (epoch, counter, old) = (record.epoch, record.counter, record.bytes.to_vec());
    // The P4 VM restarts and remembers nothing.
    let (agent, runtime) = through_a_page((epoch + 1, 0), &[]);
    auditor.rotate(LogKey::new(&key(&agent), &WEB), 0, 0);
    let mut log = LogSealer::new(&key(&runtime), &WEB, Epoch::from_session(runtime.epoch()));
    let record = log.seal(&LogRecord::default());
    let opened = auditor.open(record.epoch, record.counter, record.bytes).expect("it is genuine");
    assert_eq!(opened.continuity, Continuity::Restart { previous_epoch: 41, missed: 0 });
    assert!(auditor.open(epoch, counter, &old).is_err(), "the old session is void");
}

#[test]
fn a_handshake_runs_on_a_stream_in_any_pieces() {
    for pieces in [1, 7, 64, 100_000] {
        let (of_i, of_r) = configs();
        let (mut i, first) = Initiator::start(of_i, at(0)).expect("random bytes");
        let mut r = Responder::new(of_r).expect("random bytes");
        let (mut to_i, mut to_r) = (Decoder::new(), Decoder::new());
        let (mut workstation, mut p4vm) = (None, None);
        let mut flying = Some(first);
        while let Some(sent) = flying {
            let mut answer = None;
            for mut piece in frame(&sent).expect("it fits").chunks(pieces) {
                if let Some(message) = to_r.next(&mut piece).expect("a frame") {
                    answer = take(r.handle(&message, at(1)), &mut p4vm);
                }
            }
            flying = None;
            for mut piece in frame(&answer.expect("an answer")).expect("it fits").chunks(pieces) {
                if let Some(message) = to_i.next(&mut piece).expect("a frame") {
                    flying = take(i.handle(&message, at(1)), &mut workstation);
                }
            }
        }
        let (mut a, mut b) = (workstation.expect("a session"), p4vm.expect("a session"));
        assert_eq!(a.transcript(), b.transcript());
        let (mut to_p4vm, mut from_p4vm) = a.take_stream().expect("the first time");
        let (mut to_workstation, mut from_workstation) = b.take_stream().expect("the first time");
        let bundle = to_p4vm.seal(b"bundle", true).expect("it fits");
        assert_eq!(from_workstation.open(&bundle), Ok((b"bundle".to_vec(), true)));
        let loaded = to_workstation.seal(b"loaded", true).expect("it fits");
        assert_eq!(from_p4vm.open(&loaded), Ok((b"loaded".to_vec(), true)));
        assert!(a.take_stream().is_none() && b.take_stream().is_none(), "once");
        // What a party sends does not open as what it receives.
        assert!(to_p4vm.seal(b"more", false).is_err());
    }
}
