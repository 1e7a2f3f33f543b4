//! The library as a switch library loads it: over the C interface, from the folder of the code that loads it.

use p4shield_abi::Verdict;
use p4shield_abi::channel::{Geometry, Request as PacketRequest};
use p4shield_attach::inline::{InlineLibrary, LoadError, LoadedPrograms};
use p4shield_channel::Response;
use p4shield_control::{Hello, PROTOCOL_VERSION, ProgramSlot, Reply, Request, ResourceId};
use p4shield_mediator::InlineEngine;
use rustix::fs::{MemfdFlags, memfd_create};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn hello() -> Request {
    Request::Hello(Hello {
        version: PROTOCOL_VERSION,
        tenant: "alice".into(),
        door: None,
        no_program: Verdict::Pass as u8,
        age_limit_ms: 1000,
        log_interval_ms: 100,
        budget: 1 << 16,
        min_epoch: 0,
    })
}

fn programs() -> LoadedPrograms {
    let (programs, reply) = InlineLibrary::load().unwrap().create(Geometry::default(), hello(), Vec::new());
    assert!(matches!(reply, Reply::Hello { .. }), "{reply:?}");
    let mut programs = programs.unwrap();
    let vm = Request::SetVm { vm: 0, name: "web".into(), info: None, log: None, handshake: None, keys: None };
    assert_eq!(programs.execute(vm, None, Vec::new()), Reply::Done);
    programs
}

fn passes(engine: &mut dyn InlineEngine, vm: u16) -> bool {
    let request = PacketRequest { vm, packet_len: 60, copy_len: 60, ..PacketRequest::default() };
    let mut passes = false;
    assert!(engine.run(&mut |batch| {
        assert_eq!(batch.header_bytes(), Geometry::default().header_bytes as usize);
        passes = batch.judge(&request, &[0; 60]) == Response::Pass;
    }));
    passes
}

#[test]
fn packets_are_judged_over_the_c_interface() {
    let mut programs = programs();
    let mut one = programs.engine().unwrap();
    let mut other = one.another().unwrap();
    assert!(passes(&mut one, 0) && passes(&mut other, 0));
    assert!(!passes(&mut one, 1), "an unknown VM has no program that could pass its packets");
    programs.maintain();
    let Reply::Status(status) = programs.execute(Request::Status, None, Vec::new()) else { panic!() };
    assert_eq!((status.vms[0].directions[0].judged, status.vms[0].directions[0].passed), (2, 2));
    drop(programs);
    assert!(passes(&mut one, 0), "an engine outlives the programs' manager");
}

#[test]
fn one_thread_uses_the_programs_at_a_time() {
    let mut programs = programs();
    let (mut one, mut other) = (programs.engine().unwrap(), programs.engine().unwrap());
    assert!(one.run(&mut |_| assert!(!other.run(&mut |_| panic!("two at a time")))));
    assert!(other.run(&mut |_| {}));
}

#[test]
fn a_panic_of_the_switch_crosses_the_interface() {
    let mut programs = programs();
    let mut engine = programs.engine().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| engine.run(&mut |_| panic!("of the switch"))));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "of the switch");
    assert!(passes(&mut engine, 0), "and releases the programs");
}

#[test]
fn an_unverified_program_is_refused() {
    let mut programs = programs();
    let fd = memfd_create("object", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&fd, b"no object").unwrap();
    let slot = ProgramSlot::new(0, p4shield_abi::Direction::Ingress);
    let load =
        Request::LoadProgram { slot, name: "program".into(), objects: ResourceId(0), lengths: vec![9] };
    assert!(matches!(programs.execute(load, Some([0; 32]), vec![fd]), Reply::Refused(_)));
}

#[test]
fn a_failed_greeting_makes_no_programs() {
    let library = InlineLibrary::load().unwrap();
    let odd = Geometry { slots: 3, ..Geometry::default() };
    assert!(matches!(library.create(odd, hello(), Vec::new()), (None, Reply::Failed(_))));
    let first = library.create(Geometry::default(), Request::Status, Vec::new());
    assert!(matches!(first, (None, Reply::Failed(_))));
}

/// Reruns itself in a copy of this program, in a folder without the library.
#[test]
fn a_missing_library_is_an_error_that_names_it() {
    const COPY: &str = "P4SHIELD_TEST_COPY";
    if std::env::var_os(COPY).is_some() {
        let error = InlineLibrary::load().unwrap_err();
        assert!(matches!(error, LoadError::Load { .. }));
        let text = error.to_string();
        assert!(text.contains("libp4shield_inline.so") && text.contains("install it"), "{text}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let name = "a_missing_library_is_an_error_that_names_it";
    let run = std::process::Command::new(&copy).args(["--exact", name]).env(COPY, "1").output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && text.contains("1 passed"), "{text}");
}
