use super::*;
use proptest::prelude::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((MESSAGE + payload.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend([kind, 0].iter().flat_map(|half| half.to_ne_bytes()));
    bytes.extend([sequence, 7].iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(payload);
    bytes
}

fn link(attributes: &[u8]) -> Vec<u8> {
    let head: Vec<u8> = [0, 2, 0x1003_u32, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    message(NEW_LINK, 1, &[&head, attributes].concat())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The answer of Linux 6.1 for an 82576 (QEMU's `igb`) with four virtual functions: one to the outside, two
/// of VLAN 10, one of VLAN 20.
fn recorded() -> Vec<u8> {
    let digits: Vec<u8> =
        include_bytes!("igb.hex").iter().filter(|c| !c.is_ascii_whitespace()).copied().collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(octet).collect()
}

#[test]
fn a_recorded_answer_is_read() {
    let answer = recorded();
    let card = read(&answer, 1).unwrap();
    assert_eq!((card.index, card.is_up, card.device.as_deref()), (2, true, Some("0000:01:00.0")));
    assert_eq!((card.count, card.functions.len()), (4, 4));
    for (function, (last, vlan)) in card.functions.iter().zip([(0xca, 0), (0xaf, 10), (0xa1, 10), (0xb1, 20)])
    {
        let expected = VirtualFunction {
            number: function.number,
            mac: [2, 0, 0, 0, 0, last],
            vlan,
            spoof_check: Some(true),
            trusted: Some(false),
            ..VirtualFunction::default()
        };
        assert_eq!(function, &expected);
    }
    assert_eq!(card.functions.iter().map(|function| function.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_damaged_recording_is_read_or_refused() {
    let answer = recorded();
    for length in 0..answer.len() {
        assert!(read(&answer[..length], 1).is_err(), "{length}");
    }
    for at in 0..answer.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = answer.clone();
            damaged[at] = value;
            let _ = read(&damaged, 1);
        }
    }
}

#[test]
fn what_a_driver_does_not_say_is_unknown() {
    let mac = [&words(&[5]), &[2, 0, 0, 0, 0, 9][..], &[0; 26]].concat();
    let silent = [attribute(vf::SPOOFCHK, &words(&[5, u32::MAX])), attribute(vf::TRUST, &words(&[5, 1]))];
    let info = attribute(VF_INFO, &[attribute(vf::MAC, &mac), silent.concat()].concat());
    let list = attribute(VFINFO_LIST | 0x8000, &info);
    let card = read(&link(&list), 1).unwrap();
    let [function] = &card.functions[..] else { panic!("{card:?}") };
    assert_eq!((function.number, function.mac[5]), (5, 9));
    assert_eq!((function.spoof_check, function.trusted), (None, Some(true)));
}

#[test]
fn a_service_providers_tag_is_told_apart() {
    let mac = attribute(vf::MAC, &[0; 36]);
    for (protocol, is_service) in [(0x8100_u16, false), (0x88a8, true)] {
        let entry = [&words(&[0, 10, 0])[..], &protocol.to_be_bytes(), &[0; 2]].concat();
        let list = attribute(vf::VLAN_LIST, &attribute(1, &entry));
        let info = attribute(VF_INFO, &[mac.clone(), list].concat());
        let card = read(&link(&attribute(VFINFO_LIST, &info)), 1).unwrap();
        assert_eq!(card.functions[0].has_service_tag, is_service);
    }
}

#[test]
fn answers_that_are_none_are_refused() {
    let kind = |answer: &[u8]| read(answer, 1).unwrap_err().kind();
    let refusal = message(ERROR, 1, &words(&[(-19_i32).cast_unsigned(), 0]));
    assert_eq!(read(&refusal, 1).unwrap_err().raw_os_error(), Some(19));
    for bad in [
        &[][..],
        &[1, 2, 3],
        &message(NEW_LINK, 2, &[0; 16]),
        &message(NEW_LINK, 1, &[0; 8]),
        &message(ERROR, 1, &words(&[0])),
        &message(ERROR, 1, &words(&[i32::MIN.cast_unsigned()])),
        &link(&[1, 0, 0, 0]),
        &link(&attribute(NUM_VF, &[1])),
        &link(&attribute(PARENT_DEV_NAME, b"no zero")),
        &link(&attribute(VFINFO_LIST, &attribute(VF_INFO, &[]))),
        &words(&[0, 0, 0, 0]),
        &words(&[u32::MAX, 0, 0, 0]),
    ] {
        assert_eq!(kind(bad), io::ErrorKind::InvalidData, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_answer_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes, 1);
        let _ = read(&link(&bytes), 1);
        let _ = read(&link(&attribute(VFINFO_LIST, &attribute(VF_INFO, &bytes))), 1);
    }
}
