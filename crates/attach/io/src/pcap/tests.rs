//! Captures in and out, and damaged ones.

use std::path::Path;

use proptest::prelude::*;

use super::*;

/// Encodes a capture of packets with their times in nanoseconds, in one byte order.
fn capture(packets: &[(u64, &[u8])], is_big: bool, magic: u32, unit: u64) -> Vec<u8> {
    let word = |w: u32| if is_big { w.to_be_bytes() } else { w.to_le_bytes() };
    let version = if is_big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut out = [word(magic), version, word(0), word(0), word(65535), word(1)].concat();
    for (time, bytes) in packets {
        let (seconds, part) = (time / 1_000_000_000, time % 1_000_000_000 / unit);
        for w in [seconds as u32, part as u32, bytes.len() as u32, bytes.len() as u32] {
            out.extend(word(w));
        }
        out.extend(*bytes);
    }
    out
}

fn small(packets: &[(u64, &[u8])]) -> Vec<u8> {
    capture(packets, false, 0xa1b2_3c4d, 1)
}

fn port(input: Option<&Path>, output: Option<&Path>) -> PortFiles {
    PortFiles { input: input.map(Into::into), output: output.map(Into::into) }
}

/// Reads everything that a port receives.
fn all(io: &mut PcapPorts, port: usize) -> Result<Vec<Vec<u8>>, Error> {
    let mut packets = Vec::new();
    while io.receive(port, 2, |p| packets.push(p.to_vec()))? > 0 {}
    Ok(packets)
}

fn refusal(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    fs::write(&file, bytes).unwrap();
    let opened = PcapPorts::open(&[port(Some(&file), None)]);
    let error = opened.and_then(|mut io| all(&mut io, 0)).expect_err("it is damaged");
    error.to_string().replace(file.to_str().unwrap(), "FILE")
}

#[test]
fn packets_go_from_file_to_file_in_order_with_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, to, back] = ["a", "b", "c", "d"].map(|n| folder.path().join(n));
    let (one, two) = ([1; 60], [2; 14]);
    let packets: [(u64, &[u8]); 3] = [(1_000_000_007, &one), (2_000_000_000, &two), (3_000_000_001, &one)];
    fs::write(&first, small(&packets)).unwrap();
    fs::write(&second, capture(&[(5_000_006_000, &two)], true, 0xa1b2_c3d4, 1_000)).unwrap();
    let files = [port(Some(&first), Some(&back)), port(Some(&second), Some(&to)), port(None, None)];
    let mut io = PcapPorts::open(&files).unwrap();
    assert_eq!(io.ports(), 3);
    while !io.ended() {
        for n in 0..2 {
            let mut received = Vec::new();
            // One at a time: what is sent has the time of the last packet received.
            io.receive(n, 1, |p| received.push(p.to_vec())).unwrap();
            for packet in received {
                assert!(io.send(1 - n, &packet));
                assert!(!io.send(2, &packet), "without a file it is lost");
            }
        }
        io.wait(Duration::from_secs(9), None).unwrap();
    }
    assert_eq!(io.receive(0, 32, |_| panic!("it ended")).unwrap(), 0);
    assert_eq!(io.receive(2, 32, |_| panic!("it has no input")).unwrap(), 0);
    io.flush().unwrap();
    assert_eq!(fs::read(&to).unwrap()[24..], small(&packets)[24..]);
    assert_eq!(fs::read(&back).unwrap()[24..], small(&[(5_000_006_000, &two)])[24..]);
}

#[test]
fn damaged_captures_are_refused_with_their_place() {
    let good = small(&[(0, &[1; 60]), (0, &[2; 60])]);
    assert_eq!(
        refusal(&[]),
        "FILE: the file ends within the file's header, or its length is wrong, at byte 0"
    );
    let pcapng = [&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat();
    assert_eq!(refusal(&pcapng), "FILE: not a pcap file (convert pcapng first: editcap -F pcap), at byte 0");
    let cut = "FILE: the file ends within a packet, or its length is wrong, at byte 100";
    assert_eq!(refusal(&good[..110]), cut);
    assert_eq!(refusal(&good[..good.len() - 1]), cut);
    let mut long = good.clone();
    long[108..112].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(refusal(&long), cut);
    let mut wifi = good;
    wifi[20] = 105;
    let link = "FILE: packets have link type 105; only Ethernet (1) is supported, at byte 20";
    assert_eq!(refusal(&wifi), link);
    let jumbo = small(&[(0, &vec![0; MAX_PACKET + 1])]);
    assert_eq!(refusal(&jumbo), "FILE: a packet is longer than 262144 bytes, at byte 24");
}

#[test]
fn packets_before_the_damage_arrive_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    let mut bytes = small(&[(0, &[1; 60]), (0, &[2; 60])]);
    bytes.pop();
    fs::write(&file, bytes).unwrap();
    let mut io = PcapPorts::open(&[port(Some(&file), None)]).unwrap();
    let mut received = Vec::new();
    assert_eq!(io.receive(0, 32, |p| received.push(p.to_vec())).unwrap(), 1);
    assert_eq!(received, [[1; 60]]);
    for _ in 0..2 {
        assert!(matches!(io.receive(0, 32, |_| ()), Err(Error::Damaged { offset: 100, .. })));
        assert!(!io.ended());
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [input, absent] = ["in", "absent/file"].map(|n| folder.path().join(n));
    fs::write(&input, small(&[(0, &[1; 60])])).unwrap();
    let refusal = |files: &[PortFiles]| PcapPorts::open(files).unwrap_err().to_string();
    let named = |what: &str, file: &Path| format!("cannot {what} the capture {}", file.display());
    assert_eq!(refusal(&[port(Some(&absent), None)]), named("open", &absent));
    assert_eq!(refusal(&[port(None, Some(&absent))]), named("create", &absent));
    let twice = refusal(&[port(Some(&input), None), port(None, Some(&folder.path().join("./in")))]);
    assert!(twice.ends_with("give each output a file of its own"), "{twice}");
    assert_eq!(fs::read(&input).unwrap().len(), 100, "the input is as it was");
}

#[test]
fn a_full_disk_is_reported_by_flush() {
    let full = Path::new("/dev/full");
    let mut io = PcapPorts::open(&[port(None, Some(full))]).unwrap();
    while io.send(0, &[0; 9000]) {}
    let error = io.flush().unwrap_err();
    assert_eq!(error.to_string(), "cannot write the capture /dev/full");
}

/// Bytes that begin as a capture, more often than not, and end anyhow.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let packets = prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..80)), 0..5);
    let good = packets.prop_map(|packets| {
        let packets: Vec<_> = packets.iter().map(|p| (p.0, p.1.as_slice())).collect();
        small(&packets)
    });
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let damaged = (good, damage, any::<prop::sample::Index>()).prop_map(|(mut bytes, damage, end)| {
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        bytes
    });
    prop_oneof![4 => damaged, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn any_bytes_end_in_packets_or_an_error(bytes in bytes()) {
        let Ok(mut input) = Input::new(&bytes[..], Path::new("x")) else { return Ok(()) };
        let mut total = 24;
        while let Ok(Some(packet)) = input.next() {
            total += 16 + packet.bytes.len();
            prop_assert!(total <= bytes.len());
        }
        prop_assert_eq!(input.ended(), total == bytes.len());
    }
}
