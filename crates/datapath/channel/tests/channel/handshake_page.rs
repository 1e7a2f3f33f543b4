//! The handshake page between honest ends, and with a host that overwrites it.

use p4shield_abi::handshake_page::{HALF_SIZE, HANDSHAKE_PAGE_SIZE, MESSAGE_ROOM};
use p4shield_channel::{ChannelError, HandshakePage, Memory, PageFault, SharedMemory};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

fn page() -> (HandshakePage, HandshakePage, SharedMemory) {
    let memory = SharedMemory::create_memfd("handshake", HANDSHAKE_PAGE_SIZE).expect("memory");
    let again = || memory.map_again().expect("memory");
    let (vm, p4vm) = (HandshakePage::of_user_vm(again()), HandshakePage::of_p4_vm(again()));
    (vm.expect("it fits"), p4vm.expect("it fits"), memory)
}

#[test]
fn each_end_receives_the_others_messages_once() {
    let (mut vm, mut p4vm, _) = page();
    assert_eq!((vm.receive(), p4vm.receive()), (Ok(None), Ok(None)));
    for len in [1, 100, MESSAGE_ROOM] {
        let (question, answer) = (vec![len as u8; len], vec![!(len as u8); len]);
        vm.send(&question).expect("it fits");
        assert_eq!(vm.receive(), Ok(None), "an end does not receive its own messages");
        assert_eq!(p4vm.receive(), Ok(Some(question.as_slice())));
        assert_eq!(p4vm.receive(), Ok(None));
        p4vm.send(&answer).expect("it fits");
        assert_eq!(vm.receive(), Ok(Some(answer.as_slice())));
        assert_eq!(vm.receive(), Ok(None));
    }
    let too_long = Err(PageFault::TooLong { len: MESSAGE_ROOM + 1, room: MESSAGE_ROOM });
    assert_eq!(vm.send(&vec![0; MESSAGE_ROOM + 1]), too_long);
}

#[test]
fn a_restarted_end_does_not_receive_old_messages() {
    let (mut vm, mut p4vm, memory) = page();
    vm.send(b"old").expect("it fits");
    let mut restarted = HandshakePage::of_p4_vm(memory).expect("it fits");
    assert_eq!(restarted.receive(), Ok(None));
    vm.send(b"repeated").expect("it fits");
    assert_eq!(restarted.receive(), Ok(Some(b"repeated".as_slice())));
    assert_eq!(p4vm.receive(), Ok(Some(b"repeated".as_slice())));
}

#[test]
fn a_host_that_wipes_the_page_costs_one_message() {
    let (mut vm, mut p4vm, host) = page();
    vm.send(b"lost").expect("it fits");
    host.copy_in(0, &vec![0; HANDSHAKE_PAGE_SIZE]);
    assert_eq!(p4vm.receive(), Ok(None));
    for message in [b"first", b"again"] {
        vm.send(message).expect("the half is set up again");
        assert_eq!(p4vm.receive(), Ok(Some(message.as_slice())));
        p4vm.send(message).expect("the half is set up again");
        assert_eq!(vm.receive(), Ok(Some(message.as_slice())));
    }
}

#[test]
fn false_lengths_and_unfinished_messages_are_faults() {
    let (mut vm, mut p4vm, host) = page();
    vm.send(b"message").expect("it fits");
    host.store_u64(64 + 24, u64::from(u32::MAX), Relaxed);
    let room = MESSAGE_ROOM as u32;
    assert_eq!(p4vm.receive(), Err(PageFault::Length { len: u32::MAX, room }));
    host.store_u64(64, 1, Relaxed);
    assert!(matches!(p4vm.receive(), Err(PageFault::Torn(_))), "being written for ever");
    host.store_u64(0, 7, Relaxed);
    assert_eq!(p4vm.receive(), Err(PageFault::NotAPage));
    // The other half is intact.
    p4vm.send(b"answer").expect("it fits");
    assert_eq!(vm.receive(), Ok(Some(b"answer".as_slice())));
}

#[test]
fn a_small_region_is_refused() {
    let memory = SharedMemory::create_memfd("handshake", HALF_SIZE).expect("memory");
    assert!(matches!(HandshakePage::of_p4_vm(memory), Err(ChannelError::TooSmall { .. })));
}

proptest! {
    #[test]
    fn any_bytes_on_the_page_are_faults_or_messages(
        writes in prop::collection::vec((0..HANDSHAKE_PAGE_SIZE / 8, any::<u64>(), any::<bool>()), 0..64)
    ) {
        let (mut vm, mut p4vm, host) = page();
        for (n, (word, value, near_the_header)) in writes.into_iter().enumerate() {
            // Mostly headers of page and slot, and small numbers.
            let at = if near_the_header { word % 16 * 8 + (word & 16) / 16 * HALF_SIZE } else { word * 8 };
            host.store_u64(at, if n % 2 == 0 { value } else { value % 8 }, Relaxed);
            for end in [&mut vm, &mut p4vm] {
                if let Ok(Some(message)) = end.receive() {
                    assert!(message.len() <= MESSAGE_ROOM);
                }
                end.send(b"message").expect("sending does not depend on what the page contains");
            }
        }
    }
}
