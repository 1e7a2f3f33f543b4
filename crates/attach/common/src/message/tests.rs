use super::*;
use p4shield_config::TunnelKind;
use p4shield_mediator::{DirectionCounts, VmRef};

fn reports() -> Vec<LibraryMessage> {
    let (port, lane) = (PortId(1), LaneId(2));
    let info = PortInfo { name: "net_af_packet0".into(), aliases: vec!["eth0".into()], number: 7 };
    let tally = DirectionCounts { packets_in: u64::MAX, dropped: [3; 9], ..DirectionCounts::default() };
    let count = Count::new((1, 2, 1), tally);
    let held = HeldChannel { tenant: 1, channel: 9, zero_copy: true };
    let lane_up =
        |facing, packets, held| LibraryMessage::LaneUp { lane, port, queue: 3, facing, packets, held };
    let packets = Some(PacketMemory { tenant: "alice".into(), len: 1 << 24 });
    vec![
        LibraryMessage::Hello {
            version: VERSION,
            session: u64::MAX,
            kind: Kind::Xsk,
            application: "ovs-vswitchd".into(),
            release: "1.0.0".into(),
        },
        LibraryMessage::PortUp { port, info },
        LibraryMessage::PortDown { port },
        lane_up(QueueSide::Transmit, None, vec![]),
        lane_up(QueueSide::Receive, packets, vec![held]),
        LibraryMessage::LaneDown { lane },
        LibraryMessage::Fault { lane, tenant: 1, channel: 9, why: "the P4 VM is gone".into() },
        LibraryMessage::Counts {
            lane,
            counts: vec![count; 3],
            unowned: UnownedCounts { passed: 1, dropped: 2, spoofed: 3, refused: 4 },
        },
        LibraryMessage::Notice { port: Some(port), notice: Notice::Bypass("rte_flow".into()) },
        LibraryMessage::Programs {
            id: 3,
            reply: Box::new(Reply::Loaded { digest: [7; 32], instructions: 9 }),
        },
    ]
}

fn tunnel(port: u16) -> Tunnel {
    Tunnel { kind: TunnelKind::Geneve, address: Some([192, 0, 2, 7].into()), port }
}

fn orders() -> Vec<DaemonMessage> {
    let (port, lane) = (PortId(1), LaneId(2));
    let geometry = WireGeometry { slots: 64, header_bytes: 128, headroom: 64 };
    vec![
        DaemonMessage::Setup { version: VERSION, len: 100 },
        DaemonMessage::Role { port, role: Role::Vm(VmRef { tenant: 1, vm: 2 }) },
        DaemonMessage::Channel { lane, tenant: 1, channel: 3, geometry, zero_copy: true },
        DaemonMessage::NoChannel { lane, tenant: 1 },
        DaemonMessage::Refused { why: "no".into() },
        DaemonMessage::Judge { tenant: 7 },
        DaemonMessage::Tunnels { end_points: vec![tunnel(6081), tunnel(1)] },
        DaemonMessage::Programs {
            tenant: 1,
            id: 3,
            approved: Some([7; 32]),
            geometry,
            request: Request::SetVm {
                vm: 0,
                name: "web".into(),
                info: Some(p4shield_control::ResourceId(0)),
                log: None,
                handshake: None,
                keys: None,
            },
        },
    ]
}

#[test]
fn messages_read_back() {
    for report in reports() {
        let due = report.descriptors();
        assert_eq!(decode_report(&encode(&report).unwrap(), due).unwrap(), report);
    }
    for order in orders() {
        assert_eq!(decode_order(&encode(&order).unwrap(), order.descriptors()).unwrap(), order);
    }
}

#[test]
fn cut_and_extended_messages_are_refused() {
    for report in reports() {
        let (mut bytes, due) = (encode(&report).unwrap(), report.descriptors());
        assert!((0..bytes.len()).all(|n| decode_report(&bytes[..n], due).is_err()), "{report:?}");
        bytes.push(0);
        assert!(decode_report(&bytes, due).is_err(), "{report:?}");
    }
    for order in orders() {
        let bytes = encode(&order).unwrap();
        assert!(
            (0..bytes.len()).all(|n| decode_order(&bytes[..n], order.descriptors()).is_err()),
            "{order:?}"
        );
    }
}

#[test]
fn descriptors_have_to_be_as_many_as_are_due() {
    for report in reports() {
        for got in (0..3).filter(|n| *n != report.descriptors()) {
            assert!(matches!(
                decode_report(&encode(&report).unwrap(), got),
                Err(MessageError::Descriptors { .. })
            ));
        }
    }
    for order in orders() {
        for got in (0..4).filter(|n| *n != order.descriptors()) {
            assert!(matches!(
                decode_order(&encode(&order).unwrap(), got),
                Err(MessageError::Descriptors { .. })
            ));
        }
    }
}

#[test]
fn what_is_longer_than_it_may_be_is_refused() {
    let long = "x".repeat(MAX_TEXT + 1);
    let info = |name: &str, aliases| PortInfo { name: name.into(), aliases, number: 0 };
    let port = PortId(1);
    for report in [
        LibraryMessage::Hello {
            version: 1,
            session: 1,
            kind: Kind::Dpdk,
            application: long.clone(),
            release: String::new(),
        },
        LibraryMessage::Hello {
            version: 1,
            session: 1,
            kind: Kind::Dpdk,
            application: String::new(),
            release: long.clone(),
        },
        LibraryMessage::PortUp { port, info: info(&long, Vec::new()) },
        LibraryMessage::PortUp { port, info: info("a", vec![long.clone()]) },
        LibraryMessage::PortUp { port, info: info("a", vec![String::new(); MAX_ALIASES + 1]) },
        LibraryMessage::Fault { lane: LaneId(1), tenant: 0, channel: 0, why: long.clone() },
        LibraryMessage::Notice { port: None, notice: Notice::Note(long.clone()) },
        LibraryMessage::Counts {
            lane: LaneId(1),
            counts: vec![Count::default(); MAX_COUNTS + 1],
            unowned: UnownedCounts::default(),
        },
    ] {
        assert!(matches!(decode_report(&encode(&report).unwrap(), 0), Err(MessageError::TooMuch(_))));
    }
    let refused = DaemonMessage::Refused { why: long.clone() };
    assert!(matches!(decode_order(&encode(&refused).unwrap(), 0), Err(MessageError::TooMuch(_))));
    let tunnels = DaemonMessage::Tunnels { end_points: vec![tunnel(1); MAX_TUNNELS + 1] };
    assert!(matches!(decode_order(&encode(&tunnels).unwrap(), 0), Err(MessageError::TooMuch(_))));
    assert_eq!(cut(&long).len(), MAX_TEXT);
    assert_eq!(cut(&"ä".repeat(MAX_TEXT)).len(), MAX_TEXT);
}

#[test]
fn as_many_counts_as_a_message_may_hold_fit_into_one() {
    let tally = DirectionCounts {
        packets_in: u64::MAX,
        bytes_in: u64::MAX,
        passed: u64::MAX,
        bytes_out: u64::MAX,
        rewritten: u64::MAX,
        dropped: [u64::MAX; 9],
        let_through: [u64::MAX; 9],
        held: 0,
    };
    let count = Count::new((u16::MAX, u16::MAX, 1), tally);
    let report = LibraryMessage::Counts {
        lane: LaneId(u32::MAX),
        counts: vec![count; MAX_COUNTS],
        unowned: UnownedCounts { passed: u64::MAX, dropped: u64::MAX, spoofed: u64::MAX, refused: u64::MAX },
    };
    assert!(encode(&report).unwrap().len() <= p4shield_control::MAX_MESSAGE);
    // A peer that says that more left than came is not believed, and nothing overflows.
    let liar = DirectionCounts { packets_in: 1, passed: 9, ..DirectionCounts::default() };
    assert_eq!(Count::new((0, 0, 0), liar).tally().held, 0);
    let _ = count.tally();
}

/// Both sides decode what the other might send: real messages with bytes changed, cut, repeated and
/// put together.
#[test]
fn a_campaign_of_damaged_messages_ends_in_messages_or_errors() {
    let mut corpus: Vec<_> = reports().iter().map(|r| encode(r).unwrap()).collect();
    corpus.extend(orders().iter().map(|o| encode(o).unwrap()));
    p4shield_testbed::campaign(&corpus, |bytes| {
        if let Ok(report) = decode_report(bytes, 0) {
            assert_eq!(decode_report(&encode(&report).unwrap(), 0).unwrap(), report);
        }
        for descriptors in 0..3 {
            if let Ok(order) = decode_order(bytes, descriptors) {
                assert_eq!(decode_order(&encode(&order).unwrap(), descriptors).unwrap(), order);
            }
        }
        let _ = crate::Setup::decode(bytes).map(|s| s.mediator().is_ok());
    });
}
