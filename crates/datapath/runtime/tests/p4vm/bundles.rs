//! Signed bundles: what a P4 VM runs and what it refuses, whatever the host sends.

use crate::programs;
use crate::rig::{EGRESS, FIRST, INGRESS, KEY, Mediator, Rig, hello, memory, set_vm, wait_for};
use crate::tests::{Test, WEB, give_pages, newest};
use p4shield_abi::{Direction, Verdict};
use p4shield_bundle::author::SigningKey;
use p4shield_bundle::{BundledProgram, Contents, Entry, HealthCheck, program_digest};
use p4shield_channel::{Doorbell, create_channel};
use p4shield_control::{BundleLoaded, BundleRequest, ClientError, MapQuery, Reply, Request};
use p4shield_seal::{LogOpener, TenantKey};

pub(crate) const TESTS: &[Test] = &[
    ("a_bundle_replaces_both_directions_together", a_bundle_replaces_both_directions_together),
    ("the_log_shows_which_entries_a_bundle_has", the_log_shows_which_entries_a_bundle_has),
    ("a_plain_program_is_refused_once_a_key_is_pinned", a_plain_program_is_refused_once_a_key_is_pinned),
    ("another_signer_or_a_changed_byte_is_refused", another_signer_or_a_changed_byte_is_refused),
    ("an_older_bundle_is_refused", an_older_bundle_is_refused),
    ("a_bundle_of_another_tenant_or_vm_is_refused", a_bundle_of_another_tenant_or_vm_is_refused),
    ("a_failing_health_check_keeps_the_old_program", a_failing_health_check_keeps_the_old_program),
    ("health_checks_leave_no_trace", health_checks_leave_no_trace),
    ("header_copies_are_as_long_as_a_bundle_needs", header_copies_are_as_long_as_a_bundle_needs),
    ("a_pinned_key_stays", a_pinned_key_stays),
    ("staged_bundles_run_after_the_commit_only", staged_bundles_run_after_the_commit_only),
    ("entries_that_do_not_fit_refuse_the_bundle", entries_that_do_not_fit_refuse_the_bundle),
];

/// Passes a packet if the table has an entry for its first byte; counts packets in the value.
pub(crate) const TABLE: &str = "
    __attribute__((section(\"maps\"), used)) struct map allowed = {1, 4, 8, 16, 0};
    PROGRAM {
        unsigned char *p = (unsigned char *)c->data;
        if (p + 14 > (unsigned char *)c->data_end) return 0;
        unsigned key = p[0];
        unsigned long long *n = lookup(&allowed, &key);
        if (!n) return 0;
        *n += 1;
        return 1;
    }";

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn entry(byte: u8) -> Entry {
    Entry { map: "allowed".into(), key: u32::from(byte).to_ne_bytes().to_vec(), value: vec![0; 8] }
}

fn program(source: &str, entries: Vec<Entry>) -> BundledProgram {
    BundledProgram { objects: vec![programs::object(source)], p4info: None, entries }
}

/// A check that ingress passes packets that begin with this byte.
fn check(byte: u8, passes: bool) -> HealthCheck {
    let packet = [&[byte][..], &[0; 63]].concat();
    let name = format!("byte-{byte}");
    HealthCheck { name, direction: 0, packet, passes, information: None }
}

/// A bundle whose ingress passes packets that begin with 7.
fn contents(version: u64) -> Contents {
    Contents {
        version,
        tenant: "red".into(),
        vm: Some("web".into()),
        header_bytes: 64,
        programs: [Some(program(TABLE, vec![entry(7)])), Some(program(programs::PASS, vec![]))],
        checks: vec![check(7, true), check(8, false)],
    }
}

fn signed(contents: &Contents) -> Vec<u8> {
    key().sign(contents).unwrap()
}

/// Starts a P4 VM that has a pinned key and one VM.
fn pinned() -> Rig {
    let mut rig = Rig::start(hello());
    rig.ask(Request::PinBundleKey { key: key().public().to_bytes() }, &[]).unwrap();
    rig.ask(set_vm(0, "web"), &[]).unwrap();
    rig
}

fn request(bytes: &[u8], floor: u64) -> BundleRequest {
    BundleRequest { vm: 0, name: "web".into(), bytes: FIRST, len: bytes.len() as u32, floor }
}

fn load(rig: &mut Rig, bytes: &[u8], floor: u64) -> Result<BundleLoaded, ClientError> {
    match rig.ask(Request::LoadBundle(request(bytes, floor)), &[&memory("bundle", bytes)])? {
        Reply::BundleLoaded(loaded) => Ok(loaded),
        other => panic!("{other:?}"),
    }
}

/// Loads a bundle that has to be refused, with this reason.
fn refused(rig: &mut Rig, bytes: &[u8], floor: u64, why: &str) {
    match load(rig, bytes, floor) {
        Err(ClientError::Refused(text)) if text.contains(why) => {}
        other => panic!("{why:?} is not in {other:?}"),
    }
}

/// Returns whether ingress passes a packet that begins with 7, and one that begins with 8.
fn verdicts(m: &mut Mediator) -> [Verdict; 2] {
    [7, 8].map(|byte| m.judge(Direction::Ingress, byte).0)
}

const SEVEN: [Verdict; 2] = [Verdict::Pass, Verdict::Drop];
const EIGHT: [Verdict; 2] = [Verdict::Drop, Verdict::Pass];

fn a_bundle_replaces_both_directions_together() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    let loaded = load(&mut rig, &signed(&contents(1)), 0).unwrap();
    assert_eq!(verdicts(&mut m), SEVEN, "the initial entries are there");
    assert_eq!(m.judge(Direction::Egress, 1).0, Verdict::Pass);
    let status = rig.status();
    let running = status.vms[0].directions.each_ref().map(|d| d.program);
    assert_eq!((loaded.version, loaded.programs), (1, running));
    // Ingress is named with its entries: other entries would be another program.
    let object = p4shield_bpf::Object::parse(&programs::object(TABLE)).unwrap();
    let linked = p4shield_bpf::link(&[object]).unwrap().digest();
    assert_eq!(running[0], Some(program_digest(linked, &[entry(7)])));
    // A bundle is all that the VM has: a direction that it does not cover has no program.
    let mut next = contents(2);
    next.programs = [Some(program(TABLE, vec![entry(8)])), None];
    next.checks = vec![];
    let loaded = load(&mut rig, &signed(&next), 0).unwrap();
    assert!(loaded.programs[0].is_some() && loaded.programs[0] != running[0]);
    assert_eq!((verdicts(&mut m), rig.status().vms[0].directions[1].program), (EIGHT, None));
    // Tools read its tables, by the program's name.
    assert_eq!(rig.entry(INGRESS, "allowed", 8), Some(1));
    let mut read = |program| {
        let query = MapQuery { slot: INGRESS, program, map: 0, from: 0, rows: 9, zeros: false };
        rig.ask(Request::ReadMap(query), &[])
    };
    let part = read(loaded.programs[0].unwrap());
    assert!(matches!(&part, Ok(Reply::MapPart(part)) if part.entries.len() == 1), "{part:?}");
    assert!(matches!(read(linked), Err(ClientError::Failed(_))), "another name is another program's");
}

/// An auditor that expects a bundle notices an older one, also if the two differ in entries only.
fn the_log_shows_which_entries_a_bundle_has() {
    let mut rig = Rig::start(hello());
    rig.ask(Request::PinBundleKey { key: key().public().to_bytes() }, &[]).unwrap();
    let (_pages, _info, log) = give_pages(&mut rig, "bundle");
    let mut opener = LogOpener::new(&TenantKey::from_bytes(KEY), &WEB);
    let mut shown = |loaded: BundleLoaded| {
        wait_for("a record with the programs", || {
            newest(&log, &mut opener).is_some_and(|r| r.record.programs.map(Some) == loaded.programs)
        });
        loaded.programs[0]
    };
    let first = shown(load(&mut rig, &signed(&contents(1)), 0).unwrap());
    let mut next = contents(2);
    next.programs[0] = Some(program(TABLE, vec![entry(7), entry(9)]));
    assert_ne!(shown(load(&mut rig, &signed(&next), 0).unwrap()), first);
}

fn a_plain_program_is_refused_once_a_key_is_pinned() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    let named = |result: Result<[u8; 32], ClientError>| match result {
        Err(ClientError::Failed(why)) => assert!(why.contains("pins key"), "{why}"),
        other => panic!("{other:?}"),
    };
    named(rig.load(INGRESS, programs::PASS));
    load(&mut rig, &signed(&contents(1)), 0).unwrap();
    named(rig.load(INGRESS, programs::PASS));
    let object = programs::object(programs::PASS);
    let (name, lengths) = ("test".to_owned(), vec![object.len() as u32]);
    let stage = Request::StageProgram { slot: INGRESS, name, objects: FIRST, lengths };
    assert!(matches!(rig.ask(stage, &[&memory("objects", &object)]), Err(ClientError::Failed(_))));
    rig.ask(Request::Commit, &[]).unwrap();
    assert_eq!(verdicts(&mut m), SEVEN);
    // Without a pinned key there is no bundle.
    let mut plain = Rig::with_vm();
    refused(&mut plain, &signed(&contents(1)), 0, "pins no key");
}

fn another_signer_or_a_changed_byte_is_refused() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    load(&mut rig, &signed(&contents(1)), 0).unwrap();
    let forged = SigningKey::from_bytes(&[8; 32]).sign(&contents(2)).unwrap();
    refused(&mut rig, &forged, 0, "is pinned");
    let mut changed = signed(&contents(2));
    let last = changed.len() - 1;
    changed[last] ^= 1;
    refused(&mut rig, &changed, 0, "a byte was changed");
    refused(&mut rig, &programs::object(programs::PASS), 0, "this is no bundle");
    // A request whose length lies.
    let bytes = signed(&contents(2));
    let fd = memory("bundle", &bytes);
    let longer = BundleRequest { len: bytes.len() as u32 + 1, ..request(&bytes, 0) };
    assert!(matches!(rig.ask(Request::LoadBundle(longer), &[&fd]), Err(ClientError::Failed(_))));
    let huge = BundleRequest { len: u32::MAX, ..request(&bytes, 0) };
    assert!(matches!(rig.ask(Request::LoadBundle(huge), &[&fd]), Err(ClientError::Refused(_))));
    assert_eq!(verdicts(&mut m), SEVEN);
}

fn an_older_bundle_is_refused() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    load(&mut rig, &signed(&contents(5)), 0).unwrap();
    let mut old = contents(4);
    old.programs[0] = Some(program(programs::PASS, vec![]));
    old.checks = vec![];
    refused(&mut rig, &signed(&old), 0, "version 5 ran before");
    // A VM that goes and comes back has the same floor.
    rig.ask(Request::RemoveVm { vm: 0 }, &[]).unwrap();
    rig.ask(set_vm(0, "web"), &[]).unwrap();
    refused(&mut rig, &signed(&old), 0, "version 5 ran before");
    // The same version again is no older one.
    load(&mut rig, &signed(&contents(5)), 0).unwrap();
    assert_eq!(verdicts(&mut m), SEVEN);
    // A P4 VM that starts anew learns the floor from an honest host.
    let mut next = pinned();
    refused(&mut next, &signed(&contents(4)), 5, "version 5 ran before");
    load(&mut next, &signed(&contents(5)), 5).unwrap();
    // A host cannot lower it.
    refused(&mut next, &signed(&old), 1, "version 5 ran before");
}

fn a_bundle_of_another_tenant_or_vm_is_refused() {
    let mut rig = pinned();
    let other_tenant = Contents { tenant: "blue".into(), ..contents(1) };
    refused(&mut rig, &signed(&other_tenant), 0, "for tenant \"blue\"");
    let other_vm = Contents { vm: Some("db".into()), ..contents(1) };
    refused(&mut rig, &signed(&other_vm), 0, "for VM \"db\"");
    // The host names another VM than the number's.
    let bytes = signed(&other_vm);
    let lie = BundleRequest { name: "db".into(), ..request(&bytes, 0) };
    let lie = rig.ask(Request::LoadBundle(lie), &[&memory("bundle", &bytes)]);
    assert!(matches!(lie, Err(ClientError::Failed(why)) if why.contains("VM 0 is not db")));
    assert_eq!(rig.status().vms[0].directions[0].program, None);
    let any = Contents { vm: None, ..contents(1) };
    load(&mut rig, &signed(&any), 0).unwrap();
}

fn a_failing_health_check_keeps_the_old_program() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    load(&mut rig, &signed(&contents(1)), 0).unwrap();
    let with = |change: &dyn Fn(&mut Contents)| {
        let mut next = contents(2);
        next.programs[0] = Some(program(TABLE, vec![entry(8)]));
        next.checks = vec![];
        change(&mut next);
        signed(&next)
    };
    refused(&mut rig, &with(&|c| c.checks = vec![check(7, true)]), 0, "\"byte-7\" (ingress) fails");
    refused(&mut rig, &with(&|c| c.checks = vec![check(8, false)]), 0, "passes the packet");
    // The other direction's program is bad.
    let unsafe_egress = |c: &mut Contents| c.programs[1] = Some(program(programs::UNSAFE, vec![]));
    refused(&mut rig, &with(&unsafe_egress), 0, "egress: ");
    // Information that a check gives, and that is missing without it.
    let asks = |information: Option<Vec<(u32, u64)>>| {
        move |c: &mut Contents| {
            c.programs[0] = Some(program(programs::ASKS, vec![]));
            c.checks = vec![HealthCheck { information: information.clone(), ..check(7, true) }];
        }
    };
    refused(&mut rig, &with(&asks(None)), 0, "drops the packet");
    refused(&mut rig, &with(&asks(Some(vec![(128, 6)]))), 0, "drops the packet");
    let careless = |c: &mut Contents| {
        c.programs[0] = Some(program(programs::CARELESS, vec![]));
        c.checks = vec![check(7, true)];
    };
    refused(&mut rig, &with(&careless), 0, "did not ask whether its information is known");
    assert_eq!(verdicts(&mut m), SEVEN, "the program before goes on");
    assert_eq!(m.judge(Direction::Egress, 1).0, Verdict::Pass);
    // A refused version does not raise the floor.
    load(&mut rig, &signed(&contents(1)), 0).unwrap();
    load(&mut rig, &with(&asks(Some(vec![(128, 7)]))), 0).unwrap();
}

fn health_checks_leave_no_trace() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    load(&mut rig, &signed(&contents(1)), 0).unwrap();
    assert_eq!(rig.entry(INGRESS, "allowed", 7), Some(0), "the packet of a check is not counted");
    m.judge(Direction::Ingress, 7);
    assert_eq!(rig.entry(INGRESS, "allowed", 7), Some(1));
}

fn header_copies_are_as_long_as_a_bundle_needs() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    load(&mut rig, &signed(&contents(1)), 0).unwrap();
    // The channel has 128 header bytes.
    let long = |version| {
        let long = Contents { header_bytes: 200, ..contents(version) };
        signed(&long)
    };
    refused(&mut rig, &long(2), 0, "128 header bytes, and the bundle needs 200");
    assert_eq!(verdicts(&mut m), SEVEN);
    rig.ask(Request::DetachChannel { channel: 1 }, &[]).unwrap();
    load(&mut rig, &long(2), 0).unwrap();
    // A channel that comes later.
    let geometry = p4shield_abi::channel::Geometry { slots: 256, ..Default::default() };
    let memory = create_channel("test", geometry).unwrap();
    let theirs = Doorbell::pair().unwrap().1.into_fd();
    let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
    let attached = rig.ask(crate::rig::attach(2, geometry), &[&fd, &theirs]);
    assert!(
        matches!(&attached, Err(ClientError::Failed(why)) if why.contains("header_bytes = 200")),
        "{attached:?}"
    );
}

fn a_pinned_key_stays() {
    let mut rig = pinned();
    let pin =
        |seed: u8| Request::PinBundleKey { key: SigningKey::from_bytes(&[seed; 32]).public().to_bytes() };
    rig.ask(pin(7), &[]).unwrap();
    assert!(matches!(rig.ask(pin(8), &[]), Err(ClientError::Failed(why)) if why.contains("is pinned")));
    assert!(matches!(rig.ask(Request::PinBundleKey { key: [0; 32] }, &[]), Err(ClientError::Failed(_))));
    // A key that comes after a VM would come after what the host loaded for it.
    let mut late = Rig::with_vm();
    assert!(matches!(late.ask(pin(7), &[]), Err(ClientError::Failed(why)) if why.contains("before any VM")));
}

fn staged_bundles_run_after_the_commit_only() {
    let mut rig = pinned();
    let mut m = rig.attach(1);
    load(&mut rig, &signed(&contents(1)), 0).unwrap();
    let mut next = contents(2);
    next.programs[0] = Some(program(TABLE, vec![entry(8)]));
    next.checks = vec![check(8, true)];
    let next = signed(&next);
    let stage = |rig: &mut Rig| {
        let reply = rig.ask(Request::StageBundle(request(&next, 0)), &[&memory("bundle", &next)]);
        assert!(matches!(reply, Ok(Reply::BundleLoaded(BundleLoaded { version: 2, .. }))), "{reply:?}");
    };
    stage(&mut rig);
    assert_eq!(verdicts(&mut m), SEVEN);
    rig.ask(Request::Discard, &[]).unwrap();
    rig.ask(Request::Commit, &[]).unwrap();
    assert_eq!(verdicts(&mut m), SEVEN, "nothing was staged any more");
    stage(&mut rig);
    rig.ask(Request::Commit, &[]).unwrap();
    assert_eq!(verdicts(&mut m), EIGHT);
    assert!(rig.status().vms[0].directions[EGRESS.direction as usize].program.is_some());
    // A bundle that a newer one has overtaken.
    stage(&mut rig);
    load(&mut rig, &signed(&contents(3)), 0).unwrap();
    let late = rig.ask(Request::Commit, &[]);
    assert!(matches!(late, Err(ClientError::Failed(why)) if why.contains("version 3 ran before")));
    assert_eq!(verdicts(&mut m), SEVEN);
}

fn entries_that_do_not_fit_refuse_the_bundle() {
    let mut rig = pinned();
    for (entry, why) in [
        (Entry { map: "absent".into(), ..entry(7) }, "no table \"absent\""),
        (Entry { key: vec![7], ..entry(7) }, "entry 1 of table \"allowed\""),
        (Entry { value: vec![7], ..entry(7) }, "entry 1 of table \"allowed\""),
    ] {
        let mut bad = contents(1);
        bad.programs[0] = Some(program(TABLE, vec![entry]));
        refused(&mut rig, &signed(&bad), 0, why);
    }
    let mut many = contents(1);
    many.programs[0] = Some(program(TABLE, (0..17).map(entry).collect()));
    refused(&mut rig, &signed(&many), 0, "entry 17 of table \"allowed\": the map is full");
}
