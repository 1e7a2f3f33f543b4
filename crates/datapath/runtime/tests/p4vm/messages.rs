//! Messages that are no valid requests.

use crate::rig::{FIRST, KEY, PATIENCE, Rig, SECOND, THIRD, hello, memory, set_vm, set_vm_with_log, spawn};
use crate::tests::Test;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_control::{Client, ClientError, Envelope, Reply, Request, Resources, VmKeys, decode, encode};
use p4shield_seal::TenantKey;
use std::os::fd::AsFd;

pub(crate) const TESTS: &[Test] = &[
    ("hostile_messages_are_answered_and_survived", hostile_messages_are_survived),
    ("a_resource_that_did_not_come_is_an_error", a_resource_that_did_not_come_is_an_error),
];

fn hostile_messages_are_survived() {
    let mut socket = spawn();
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let hello = encode(&Envelope { id: 1, body: Request::Hello(hello()) }).unwrap();
    socket.send(&hello, &[]).unwrap();
    socket.receive().unwrap();
    let file = memory("x", b"x");
    for _ in 0..5000 {
        let mut bytes: Vec<u8> = (0..1 + next() % 40).map(|_| (next() % 16) as u8).collect();
        if next() % 4 == 0 {
            bytes[0] = next() as u8;
        }
        // Any request but Stop, which ends the P4 VM.
        if decode::<Request>(&bytes).is_ok_and(|f| f.body == Request::Stop) {
            continue;
        }
        let fds = vec![file.as_fd(); next() as usize % 4];
        socket.send(&bytes, &fds).unwrap();
        socket.receive().unwrap();
    }
    let mut client = Client::new(socket);
    let status = client.call(Request::Status, &Resources::none(), PATIENCE);
    assert!(matches!(status, Ok(Reply::Status(_))), "{status:?}");
}

fn a_resource_that_did_not_come_is_an_error() {
    let mut rig = Rig::start(hello());
    let page = memory("page", &[0; LOG_PAGE_SIZE]);
    let key = memory("key", &KEY);
    let refused = |result: Result<Reply, ClientError>, why: &str| {
        assert!(matches!(&result, Err(ClientError::Failed(text)) if text.contains(why)), "{result:?}");
    };
    refused(rig.ask(set_vm_with_log(), &[&page]), "names 2 resources, but 1 came");
    refused(rig.ask(set_vm(0, "web"), &[&page]), "names 0 resources, but 1 came");
    let keys = |current| Some(VmKeys { current, previous: None });
    let set_vm = |log, keys| Request::SetVm {
        vm: 0,
        name: "web".into(),
        info: None,
        log: Some(log),
        handshake: None,
        keys,
    };
    refused(rig.ask(set_vm(FIRST, keys(FIRST)), &[&page, &key]), "resource 0 of the request is missing");
    refused(rig.ask(set_vm(FIRST, keys(THIRD)), &[&page, &key]), "resource 2 of the request is missing");
    assert!(rig.status().vms.is_empty());
    // Names decide, not positions.
    rig.ask(set_vm(SECOND, keys(FIRST)), &[&key, &page]).unwrap();
    assert_eq!(rig.status().vms[0].keys.unwrap().current, TenantKey::from_bytes(KEY).id().0);
}
