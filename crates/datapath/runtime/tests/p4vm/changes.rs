//! Changes of a running P4 VM: VMs come and go, and programs are replaced together.

use crate::bundles::TABLE;
use crate::programs;
use crate::rig::{EGRESS, FIRST, INGRESS, KEY, Pages, Rig, memory, set_vm_with_log};
use crate::tests::{Test, with_pages};
use p4shield_abi::{Direction, Verdict};
use p4shield_control::{ClientError, Hello, ProgramSlot, Reply, Request};

pub(crate) const TESTS: &[Test] = &[
    ("staged_programs_run_after_the_commit_only", staged_programs_run_after_the_commit_only),
    ("filled_maps_give_a_program_another_digest", filled_maps_give_a_program_another_digest),
    ("a_removed_vms_number_is_free_again", a_removed_vms_number_is_free_again),
    ("a_vm_that_comes_back_writes_a_later_epoch", a_vm_that_comes_back_writes_a_later_epoch),
    ("no_sequence_of_requests_repeats_a_nonce", no_sequence_of_requests_repeats_a_nonce),
];

fn stage(rig: &mut Rig, slot: ProgramSlot, source: &str) -> Result<Reply, ClientError> {
    let object = programs::object(source);
    let lengths = vec![object.len() as u32];
    let request = Request::StageProgram { slot, name: "test".into(), objects: FIRST, lengths };
    rig.ask(request, &[&memory("objects", &object)])
}

fn set_vm(rig: &mut Rig, vm: u16) {
    rig.ask(crate::rig::set_vm(vm, &format!("vm{vm}")), &[]).unwrap();
}

fn staged_programs_run_after_the_commit_only() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::PASS).unwrap();
    rig.load(EGRESS, programs::PASS).unwrap();
    let mut m = rig.attach(1);
    let mut verdicts = move || (m.judge(Direction::Ingress, 2).0, m.judge(Direction::Egress, 2).0);
    // Drops even bytes.
    for slot in [INGRESS, EGRESS] {
        assert!(matches!(stage(&mut rig, slot, programs::ODD), Ok(Reply::Loaded { .. })));
    }
    assert!(matches!(stage(&mut rig, EGRESS, programs::UNSAFE), Err(ClientError::Refused(_))));
    assert_eq!(verdicts(), (Verdict::Pass, Verdict::Pass));
    rig.ask(Request::Discard, &[]).unwrap();
    rig.ask(Request::Commit, &[]).unwrap();
    assert_eq!(verdicts(), (Verdict::Pass, Verdict::Pass), "nothing was staged any more");
    for slot in [INGRESS, EGRESS] {
        stage(&mut rig, slot, programs::ODD).unwrap();
    }
    // A program may be staged before its VM is known.
    stage(&mut rig, ProgramSlot::new(1, Direction::Ingress), programs::PASS).unwrap();
    set_vm(&mut rig, 1);
    rig.ask(Request::Commit, &[]).unwrap();
    assert_eq!(verdicts(), (Verdict::Drop, Verdict::Drop));
    assert!(rig.status().vms[1].directions[0].program.is_some());
    stage(&mut rig, ProgramSlot::new(7, Direction::Ingress), programs::PASS).unwrap();
    assert!(matches!(rig.ask(Request::Commit, &[]), Err(ClientError::Failed(_))), "there is no VM 7");
}

fn filled_maps_give_a_program_another_digest() {
    let mut rig = Rig::with_vm();
    let fill = |rig: &mut Rig, text: &str| {
        let request = Request::FillMaps { slot: INGRESS, values: FIRST, len: text.len() as u32 };
        rig.ask(request, &[&memory("values", text.as_bytes())])
    };
    assert!(matches!(fill(&mut rig, ""), Err(ClientError::Failed(why)) if why.contains("staged")));
    let Ok(Reply::Loaded { digest, .. }) = stage(&mut rig, INGRESS, TABLE) else { panic!("refused") };
    let Ok(Reply::Loaded { digest: filled, .. }) = fill(&mut rig, "allowed 8 5") else { panic!("refused") };
    assert_ne!(digest, filled);
    rig.ask(Request::Commit, &[]).unwrap();
    let mut m = rig.attach(1);
    assert_eq!(m.judge(Direction::Ingress, 8).0, Verdict::Pass);
    assert_eq!(m.judge(Direction::Ingress, 9).0, Verdict::Drop);
    assert_eq!(rig.entry(INGRESS, "allowed", 8), Some(6));
    assert_eq!(rig.status().vms[0].directions[0].program, Some(filled));
    // What is refused is not half filled.
    stage(&mut rig, INGRESS, TABLE).unwrap();
    assert!(matches!(fill(&mut rig, "allowed 9 1\nallowed"), Err(ClientError::Failed(_))));
    rig.ask(Request::Commit, &[]).unwrap();
    assert_eq!(m.judge(Direction::Ingress, 9).0, Verdict::Drop);
    let request = Request::FillMaps { slot: INGRESS, values: FIRST, len: u32::MAX };
    stage(&mut rig, INGRESS, TABLE).unwrap();
    assert!(matches!(rig.ask(request, &[&memory("values", b"")]), Err(ClientError::Failed(_))));
}

fn a_removed_vms_number_is_free_again() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::PASS).unwrap();
    let mut m = rig.attach(1);
    assert_eq!(m.judge(Direction::Ingress, 1).0, Verdict::Pass);
    rig.ask(Request::RemoveVm { vm: 0 }, &[]).unwrap();
    assert_eq!(m.judge(Direction::Ingress, 1).0, Verdict::Drop, "no VM has this number");
    assert!(rig.status().vms.is_empty());
    assert!(matches!(rig.ask(Request::RemoveVm { vm: 0 }, &[]), Err(ClientError::Failed(_))));
    assert!(matches!(rig.ask(Request::RemoveVm { vm: 9999 }, &[]), Err(ClientError::Failed(_))));
    set_vm(&mut rig, 0);
    rig.load(INGRESS, programs::PASS).unwrap();
    assert_eq!(m.judge(Direction::Ingress, 1).0, Verdict::Pass);
}

/// Adds the first VM with its log page.
fn add_with_log(rig: &mut Rig, pages: &Pages) {
    let page = std::fs::OpenOptions::new().read(true).write(true).open(&pages.log).unwrap().into();
    rig.ask(set_vm_with_log(), &[&page, &memory("key", &KEY)]).unwrap();
}

/// A floor ahead of the clock leaves nothing but random bits, which repeat after some 1,800 rounds.
fn no_sequence_of_requests_repeats_a_nonce() {
    let ahead = p4shield_seal::Now::read().real_ns + 30 * 86_400_000_000_000;
    let (mut rig, pages, _info, log) =
        with_pages("nonces", Hello { min_epoch: ahead, ..crate::rig::hello() });
    let mut last = 0;
    for round in 0..200 {
        rig.ask(Request::RemoveVm { vm: 0 }, &[]).unwrap();
        add_with_log(&mut rig, &pages);
        rig.ask(Request::RaiseEpoch { min_epoch: ahead }, &[]).unwrap();
        let epoch = || log.newest(&mut vec![0; log.room()]).ok().flatten().map_or(0, |p| p.epoch);
        crate::rig::wait_for("a record of another epoch", || epoch() != last);
        assert!(epoch() > last, "round {round}: epoch {} after {last}", epoch());
        last = epoch();
    }
}

/// Under one epoch the new writer would use the nonces of the old one again.
fn a_vm_that_comes_back_writes_a_later_epoch() {
    let (mut rig, pages, _info, log) = with_pages("again", crate::rig::hello());
    let epoch = || log.newest(&mut vec![0; log.room()]).ok().flatten().map(|p| p.epoch);
    crate::rig::wait_for("a record", || epoch().is_some());
    let first = epoch().unwrap();
    let floor = first + 86_400_000_000_000;
    rig.ask(Request::RemoveVm { vm: 0 }, &[]).unwrap();
    rig.ask(Request::RaiseEpoch { min_epoch: floor }, &[]).unwrap();
    rig.ask(Request::RaiseEpoch { min_epoch: 1 }, &[]).unwrap();
    add_with_log(&mut rig, &pages);
    crate::rig::wait_for("a record of the next epoch", || epoch().is_some_and(|e| e > first));
    assert!(epoch().unwrap() >= floor, "a lower floor lowers none");
}
