//! A test switch (lanes with vectors as packets) and a test daemon (the server, and a thread for
//! each channel that judges as a P4 VM does): daemons, P4 VMs and switches come and go, and some
//! are hostile.

mod cloud;

use cloud::{Cloud, Switch, TENANTS, dropped, packet_to, passed, wait_for};
use p4shield_attach::message::{DaemonMessage, LibraryMessage, VERSION, encode};
use p4shield_attach::{Allowed, Kind, LaneId, Notice, PortId, PortInfo, QueueSide, SwitchEvent};
use p4shield_config::Role;
use p4shield_control::Socket;
use p4shield_mediator::{Packet, Reason, VmRef};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::Uid;
use std::path::Path;
use std::time::Duration;

#[test]
fn without_a_daemon_policies_apply() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    // alice drops, bob passes, and unowned packets pass.
    assert_eq!(switch.send(0, 0), dropped(Reason::NoChannel));
    assert_eq!(switch.send(0, 1), passed());
    assert_eq!(switch.send(0, 9), passed());
}

#[test]
fn a_lane_has_a_channel_to_each_tenants_p4_vm() {
    let cloud = Cloud::new();
    let daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 2);
    for lane in 0..2 {
        switch.until_judged(lane, 0);
        switch.until_judged(lane, 1);
    }
    assert!(switch.send(0, 0) == passed() && daemon.judged(0) > 0 && daemon.judged(1) > 0);
    daemon.p4vm(0).drops();
    switch.until(0, 0, dropped(Reason::Program));
    assert_eq!(switch.send(1, 1), passed(), "bob's packets are not alice's");
}

#[test]
fn policies_apply_while_the_daemon_is_away() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 2);
    for _ in 0..3 {
        let daemon = cloud.daemon();
        switch.until_judged(0, 0);
        switch.until_judged(1, 0);
        drop(daemon);
        switch.until(0, 0, dropped(Reason::NoChannel));
        switch.until(1, 0, dropped(Reason::NoChannel));
        assert_eq!(switch.send(1, 1), passed());
    }
    switch.ends();
}

#[test]
fn a_daemon_with_other_tenants_replaces_them() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    let daemon = cloud.daemon();
    switch.until_judged(0, 0);
    drop(daemon);
    let changed = TENANTS.replace("name = \"alice\"", "name = \"carol\"").replace("10.0.0.1", "10.0.0.7");
    let daemon = cloud.daemon_with(&changed, Allowed::default());
    // Unowned among the new tenants, and carol's.
    switch.until(0, 0, passed());
    switch.until_judged(0, 7);
    daemon.p4vm(0).drops();
    switch.until(0, 7, dropped(Reason::Program));
    switch.ends();
}

#[test]
fn held_packets_keep_the_old_policy_when_tenants_change() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    let daemon = cloud.daemon();
    switch.until_judged(0, 0);
    daemon.p4vm(0).stops();
    for _ in 0..10 {
        assert!(switch.lanes[0].submit(0, packet_to(0)).is_none());
    }
    drop(daemon);
    let _daemon = cloud.daemon_with(&TENANTS.replace("\"alice\"", "\"carol\""), Allowed::default());
    let mut out = Vec::new();
    wait_for("held packets", || {
        // Time stands still: no deadline is reached.
        switch.lanes[0].poll(0, 4, |r| out.push(r.disposition));
        out.len() >= 10
    });
    assert!(out.iter().all(|o| *o == dropped(Reason::NoChannel)), "{out:?}");
    assert_eq!(switch.lanes[0].held(), 0);
}

#[test]
fn a_dead_p4_vm_is_reported_and_replaced() {
    let cloud = Cloud::new();
    let daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
    daemon.p4vm(0).scribbles();
    wait_for("the fault", || {
        switch.send(0, 0);
        daemon
            .heard(|r| matches!(r, SwitchEvent::Message(LibraryMessage::Fault { tenant: 0, channel: 1, .. })))
    });
    assert_eq!(switch.send(0, 0), dropped(Reason::Fault));
    assert_eq!(switch.send(0, 1), passed());
    daemon.replace_p4vms();
    switch.until_judged(0, 0);
}

#[test]
fn the_daemon_assigns_the_roles_of_ports() {
    let cloud = Cloud::new();
    let daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
    let (peer, port) = daemon.port();
    // Packets come from 10.0.0.99, an unowned address.
    peer.role(port, Role::Vm(VmRef { tenant: 0, vm: 0 }));
    switch.until(0, 0, dropped(Reason::Spoofed));
    peer.role(port, Role::Uplink);
    switch.until(0, 0, passed());
    // A VM that is not there ends the talk, and the next one heals it.
    peer.role(port, Role::Vm(VmRef { tenant: 0, vm: 77 }));
    wait_for("another talk", || daemon.heard(|h| *h == SwitchEvent::Disconnected));
    switch.until_judged(0, 0);
}

#[test]
fn ports_lanes_notices_and_counts_are_reported() {
    let cloud = Cloud::new();
    let mut switch = Switch::new(&cloud, 1);
    switch.session.notify(None, Notice::Note("early".into()));
    let daemon = cloud.daemon();
    switch.until_judged(0, 0);
    let port = switch.session.port_up(PortInfo { name: "spare".into(), ..PortInfo::default() });
    for _ in 0..3 {
        switch.session.notify(Some(port), Notice::Bypass("rte_flow".into()));
    }
    let sent = switch.sent[0];
    wait_for("counts", || {
        daemon.heard(|h| {
            matches!(h, SwitchEvent::Message(LibraryMessage::Counts { counts, .. }) if counts.iter().any(|c|
                c.tenant == 0 && c.direction == 0 && (c.tally().packets_in, c.tally().held) == (sent, 0)))
        })
    });
    switch.session.port_down(port);
    let gone = switch.lanes.remove(0);
    let lane = gone.id();
    drop(gone);
    wait_for("the end of a lane", || {
        daemon.heard(|h| *h == SwitchEvent::Message(LibraryMessage::LaneDown { lane }))
    });
    let remarks = daemon.count(|h| matches!(h, SwitchEvent::Message(LibraryMessage::Notice { .. })));
    assert_eq!(remarks, 2, "the same notice is told once");
    assert!(daemon.heard(|h| *h == SwitchEvent::Message(LibraryMessage::PortDown { port })));
}

#[test]
fn a_closing_lane_releases_every_held_packet() {
    let cloud = Cloud::new();
    let daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
    switch.until_judged(0, 1);
    daemon.p4vm(0).stops();
    daemon.p4vm(1).stops();
    for n in 0..20 {
        assert!(switch.lanes[0].submit(0, packet_to(n % 2)).is_none());
    }
    assert_eq!(switch.lanes[0].held(), 20);
    let mut out = Vec::new();
    switch.lanes[0].drain(|r| out.push((r.packet.bytes()[33], r.disposition)));
    assert_eq!((out.len(), switch.lanes[0].held()), (20, 0));
    for (tenant, disposition) in out {
        assert_eq!(disposition, if tenant == 1 { dropped(Reason::NoChannel) } else { passed() });
    }
}

/// A connection that says what it likes.
fn stranger(path: &Path) -> Option<Socket> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&fd, &SocketAddrUnix::new(path).unwrap()).ok()?;
    Some(Socket::new(fd))
}

fn hello() -> Vec<u8> {
    encode(&LibraryMessage::Hello {
        version: VERSION,
        session: 1,
        kind: Kind::Dpdk,
        application: "hostile".into(),
        release: String::new(),
    })
    .unwrap()
}

/// Whether the daemon hangs up.
fn is_hung_up(socket: &mut Socket) -> bool {
    (0..100).any(|_| socket.wait(Some(Duration::from_secs(20))).is_err() || socket.receive().is_err())
}

#[test]
fn hostile_switches_lose_their_connection_only() {
    let cloud = Cloud::new();
    let _daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
    let up = |n| {
        encode(&LibraryMessage::LaneUp {
            lane: LaneId(n),
            port: PortId(n),
            queue: 0,
            facing: QueueSide::Receive,
            packets: None,
            held: vec![],
        })
        .unwrap()
    };
    let port = encode(&LibraryMessage::PortUp { port: PortId(1), info: PortInfo::default() }).unwrap();
    let old = encode(&LibraryMessage::Hello {
        version: 0,
        session: 1,
        kind: Kind::Dpdk,
        application: String::new(),
        release: String::new(),
    })
    .unwrap();
    let talks: [&[Vec<u8>]; 8] = [
        &[vec![0xff; 1000]],
        &[vec![1]],
        &[up(1)],
        &[hello(), hello()],
        &[hello(), up(1)],
        &[hello(), port.clone(), port.clone()],
        &[hello(), encode(&DaemonMessage::Refused { why: "x".into() }).unwrap(), vec![0xff; 9]],
        &[old],
    ];
    for talk in talks {
        let mut socket = stranger(cloud.socket()).unwrap();
        for message in talk {
            // The daemon may have hung up already.
            let _ = socket.send(message, &[]);
        }
        assert!(is_hung_up(&mut socket), "{talk:?}");
        assert_eq!(switch.send(0, 0), passed());
    }
    // One that sends without end, one that never reads, and one that says nothing.
    let flood =
        encode(&LibraryMessage::Notice { port: None, notice: Notice::Note("x".repeat(1000)) }).unwrap();
    let (flooding, silent) = (stranger(cloud.socket()).unwrap(), stranger(cloud.socket()).unwrap());
    flooding.send(&hello(), &[]).unwrap();
    for _ in 0..2000 {
        let _ = flooding.send(&flood, &[]);
    }
    let mut another = Switch::new(&cloud, 1);
    another.until_judged(0, 0);
    switch.until_judged(0, 1);
    drop((flooding, silent));
}

#[test]
fn random_messages_close_only_their_connection() {
    let cloud = Cloud::new();
    let _daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    for _ in 0..200 {
        let socket = stranger(cloud.socket()).unwrap();
        let _ = socket.send(&hello(), &[]);
        for _ in 0..next() % 8 {
            let bytes: Vec<_> =
                (0..next() % 40).map(|i| if i == 0 { 0 } else { (next() % 12) as u8 }).collect();
            let _ = socket.send(&bytes, &[]);
        }
    }
    assert_eq!(switch.send(0, 0), passed());
    switch.until_judged(0, 1);
}

#[test]
fn switches_of_other_users_are_refused() {
    if !rustix::process::geteuid().is_root() {
        p4shield_need::skip("root", "only root can change its user");
        return;
    }
    let cloud = Cloud::new();
    cloud.open_to_all();
    let _daemon = cloud.daemon_with(TENANTS, Allowed { uids: vec![4242], gids: vec![] });
    let as_user = |uid| told(&mut connect_as(uid, cloud.socket())?);
    assert!(matches!(as_user(4242), Some(DaemonMessage::Setup { .. })));
    let refused = as_user(4243);
    assert!(
        matches!(&refused, None | Some(DaemonMessage::Refused { .. }))
            && !matches!(refused, Some(DaemonMessage::Setup { .. })),
        "{refused:?}"
    );
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
}

#[test]
fn a_user_that_is_no_longer_allowed_is_disconnected() {
    if !rustix::process::geteuid().is_root() {
        p4shield_need::skip("root", "only root can change its user");
        return;
    }
    let cloud = Cloud::new();
    cloud.open_to_all();
    let daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
    assert!(connect_as(4242, cloud.socket()).is_none());
    daemon.server.change_allowed(Allowed { uids: vec![4242], gids: vec![] }).unwrap();
    let mut other = connect_as(4242, cloud.socket()).unwrap();
    assert!(matches!(told(&mut other), Some(DaemonMessage::Setup { .. })));
    daemon.server.change_allowed(Allowed::default()).unwrap();
    assert!(matches!(told(&mut other), Some(DaemonMessage::Refused { .. })) && is_hung_up(&mut other));
    assert!(connect_as(4242, cloud.socket()).is_none());
    assert_eq!(switch.send(0, 0), passed(), "root's switches stay");
}

#[test]
fn one_users_switches_leave_room_for_anothers() {
    if !rustix::process::geteuid().is_root() {
        p4shield_need::skip("root", "only root can change its user");
        return;
    }
    let cloud = Cloud::new();
    cloud.open_to_all();
    let _daemon = cloud.daemon_with(TENANTS, Allowed { uids: vec![4242, 4243], gids: vec![] });
    let mut many: Vec<_> = (0..64).filter_map(|_| connect_as(4242, cloud.socket())).collect();
    let welcome = |socket: &mut Socket| matches!(told(socket), Some(DaemonMessage::Setup { .. }));
    let served = many.iter_mut().filter_map(|socket| welcome(socket).then_some(())).count();
    assert!((1..32).contains(&served), "{served} of 64");
    assert!(connect_as(4243, cloud.socket()).is_some_and(|mut socket| welcome(&mut socket)));
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
}

/// Says hello as another user; none if it was hung up on.
fn connect_as(uid: u32, path: &Path) -> Option<Socket> {
    let path = path.to_owned();
    // Of one thread only, and the socket remembers who connected.
    let became = std::thread::spawn(move || {
        rustix::thread::set_thread_res_uid(None, Uid::from_raw(uid), None).unwrap();
        let socket = stranger(&path)?;
        socket.send(&hello(), &[]).ok().map(|()| socket)
    });
    became.join().unwrap()
}

/// The daemon's first word.
fn told(socket: &mut Socket) -> Option<DaemonMessage> {
    let message = socket.receive().ok()?;
    p4shield_attach::message::decode_order(&message.bytes, message.descriptors.len()).ok()
}
