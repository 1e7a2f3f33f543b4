//! Faults of channels that the daemon replaces meanwhile.

use super::Registry;
use crate::lane::{Lane, LaneOwner};
use crate::message::{LaneId, LibraryMessage, PortInfo, QueueSide};
use crate::setup::Setup;
use p4shield_abi::channel::Geometry;
use p4shield_channel::{Doorbell, Requester, create_channel};
use p4shield_config::{Attachment, Config};
use p4shield_mediator::P4VmChannel;
use p4shield_testbed::packet::udp;
use std::path::Path;
use std::sync::Weak;

const TENANT: &str = r#"
attachment = "dpdk"
[daemon]
attach_socket = "attach.sock"
[[tenant]]
name = "alice"
slots = 64
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
"#;

struct NoOwner;

impl LaneOwner for NoOwner {
    fn lane_down(&self, _: LaneId) {}
}

/// A registry with a connected daemon and one lane.
fn registry() -> (Registry, LaneId, Lane<Vec<u8>>) {
    let config = Config::parse(Path::new("p4shield.toml"), TENANT).expect("a configuration");
    let mut registry = Registry::new(Setup::from(&config), Attachment::Dpdk).expect("a registry");
    let port = registry.port_up(PortInfo { name: "port0".into(), ..PortInfo::default() });
    let (id, made_for, spec) = registry.lane_due(port, QueueSide::Receive);
    let (lane, control) = Lane::new(id, &made_for, spec, Weak::<NoOwner>::new());
    registry.lane_up(id, (port, 0, QueueSide::Receive), None, &made_for, control);
    registry.connected(LibraryMessage::PortDown { port });
    (registry, id, lane)
}

/// Attaches a channel, and returns the P4 VM's end of its doorbell.
fn attach(registry: &mut Registry, lane: LaneId, number: u32) -> Doorbell {
    let geometry = Geometry { slots: 64, header_bytes: 64, headroom: 32 };
    let memory = create_channel("registry", geometry).expect("memory");
    let requester = Requester::new(memory, geometry).expect("a channel");
    let (theirs, doorbell) = Doorbell::pair().expect("a doorbell");
    let link = P4VmChannel { requester, doorbell };
    assert!(registry.channel(lane, 0, Some(number), (Some(link), false)));
    theirs
}

/// Ends a P4 VM of which the lane awaits an answer. The lane's next poll reports why it detached the channel.
fn end(registry: &mut Registry, lane: &mut Lane<Vec<u8>>, p4vm: Doorbell) {
    lane.poll(0, 0, |_| {});
    assert!(lane.submit(0, udp([10, 0, 0, 99], [10, 0, 0, 1])).is_none(), "the P4 VM is asked");
    drop(p4vm);
    lane.silence();
    registry.check_faults();
    lane.poll(0, 0, |_| {});
}

/// Returns the numbers of the channels whose faults the registry reports.
fn reported(registry: &mut Registry) -> Vec<u32> {
    registry.check_faults();
    let messages = std::iter::from_fn(|| registry.outbox());
    let number = |message| match message {
        LibraryMessage::Fault { channel, .. } => Some(channel),
        _ => None,
    };
    messages.filter_map(number).collect()
}

#[test]
fn a_replaced_channels_fault_is_not_its_successors() {
    let (mut registry, id, mut lane) = registry();
    let first = attach(&mut registry, id, 1);
    end(&mut registry, &mut lane, first);
    let second = attach(&mut registry, id, 2);
    assert_eq!(reported(&mut registry), Vec::<u32>::new());
    end(&mut registry, &mut lane, second);
    assert_eq!(reported(&mut registry), [2]);
    lane.drain(|_| {});
}
