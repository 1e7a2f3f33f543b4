//! Packets, tenants and P4 VMs for the tests.

use p4shield_abi::Direction;
use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::{
    Doorbell, RequestBatch, Requester, Responder, Response, SharedMemory, create_channel,
};
use p4shield_mediator::{
    AllowedSources, Config, DirectionCounts, Disposition, Mediator, Network, P4VmChannel, Packet, PortSpec,
    Reason, ReleasedPacket, RewriteRefused, Stages, TenantConfig, UnownedPolicy, VmConfig, VmRef,
};
use std::net::{IpAddr, Ipv4Addr};

/// A packet in a vector, with a serial number that no rewrite changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestPacket {
    pub(crate) serial: u32,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the first segment; the others are not contiguous with it.
    pub(crate) segment: usize,
}

/// A packet of one segment.
pub(crate) const WHOLE: usize = usize::MAX;

/// Longest test packet after a rewrite.
pub(crate) const ROOM: usize = 256;

impl Packet for TestPacket {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.segment.min(self.bytes.len())]
    }
    fn len(&self) -> usize {
        self.bytes.len()
    }
    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        assert!(old_len <= self.bytes.len() && new.len() <= new_total_len);
        assert!(new_total_len <= self.bytes.len() - old_len + new.len());
        if new_total_len > ROOM {
            return Err(RewriteRefused);
        }
        self.segment = (self.segment - old_len).saturating_add(new.len());
        self.bytes.splice(..old_len, new.iter().copied());
        self.bytes.truncate(new_total_len);
        Ok(())
    }
}

/// Offset of the serial number in a test packet: behind Ethernet and IPv4.
pub(crate) const SERIAL_AT: usize = 34;

/// Returns the address `10.0.0.last`.
pub(crate) fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// Returns a UDP packet between two such addresses.
pub(crate) fn packet(serial: u32, source: u8, destination: u8) -> TestPacket {
    let mut bytes = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0];
    bytes.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, source, 10, 0, 0, destination]);
    bytes.extend(serial.to_be_bytes());
    bytes.resize(60, 0);
    TestPacket { serial, bytes, segment: WHOLE }
}

/// Returns an ARP request of 10.0.0.1.
pub(crate) fn arp(serial: u32) -> TestPacket {
    let mut bytes = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1]].concat();
    bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
    bytes.resize(60, 0);
    TestPacket { serial, bytes, segment: WHOLE }
}

pub(crate) fn vm(name: &str, last: u8) -> VmConfig {
    VmConfig::new(name, vec![ip(last)])
}

pub(crate) const fn vm_ref(tenant: u16, vm: u16) -> VmRef {
    VmRef { tenant, vm }
}

pub(crate) const SHARED: PortSpec = PortSpec {
    network: Network::Unknown,
    number: 1,
    stages: Stages::Both,
    unowned: UnownedPolicy::Pass,
    source: AllowedSources::Any,
};

pub(crate) fn port(stages: Stages) -> PortSpec {
    PortSpec { stages, ..SHARED }
}

pub(crate) const GEOMETRY: Geometry = Geometry { slots: 16, header_bytes: 64, headroom: 32 };

/// The tenants' deadline in nanoseconds.
pub(crate) const DEADLINE: u64 = 1_000_000;

/// Returns a configuration in which tenant 0 has 10.0.0.1 and .2, tenant 1 has .11 and .12, and so
/// on; max_held is 8.
pub(crate) fn tenants(count: u8) -> Config {
    let tenants = (0..count).map(|t| TenantConfig {
        max_held: 8,
        deadline: std::time::Duration::from_nanos(DEADLINE),
        ..TenantConfig::new(format!("t{t}"), vec![vm("x", t * 10 + 1), vm("y", t * 10 + 2)])
    });
    Config { tenants: tenants.collect() }
}

pub(crate) fn mediator(config: &Config) -> Mediator<TestPacket> {
    Mediator::new(config).expect("a valid configuration")
}

/// The P4 VM's side of a channel.
pub(crate) struct P4vm {
    pub(crate) responder: Responder,
    pub(crate) bell: Doorbell,
    pub(crate) memory: SharedMemory,
    pub(crate) batch: RequestBatch,
}

/// Attaches a P4 VM to a tenant, in place of the previous one.
pub(crate) fn attach(
    mediator: &mut Mediator<TestPacket>,
    now: u64,
    tenant: usize,
    geometry: Geometry,
) -> P4vm {
    let memory = create_channel("test", geometry).expect("memory");
    let responder = Responder::new(memory.map_again().expect("memory"), geometry).expect("valid");
    let hostile = memory.map_again().expect("memory");
    let (doorbell, bell) = Doorbell::pair().expect("sockets");
    let requester = Requester::new(memory, geometry).expect("valid");
    mediator
        .replace_channel(now, tenant, Some(P4VmChannel { requester, doorbell }))
        .expect("the tenant exists");
    P4vm { responder, bell, memory: hostile, batch: RequestBatch::new(&geometry) }
}

/// What a test's program does to a packet.
pub(crate) enum Action {
    Pass,
    Drop,
    /// New header, and change of the packet's length.
    Rewrite(Vec<u8>, i32),
}

impl P4vm {
    /// Answers up to `max` requests by `program`; returns how many.
    pub(crate) fn answer(&mut self, max: usize, program: &mut dyn FnMut(&Request, &[u8]) -> Action) -> usize {
        let mut actions = Vec::new();
        let count = self.responder.fetch_with(max, |request, frame| {
            let mut header = vec![0; frame.len()];
            frame.copy_to(&mut header);
            actions.push((program(request, &header), request.packet_len));
        });
        for (action, packet_len) in actions {
            let response = match &action {
                Action::Pass => Response::Pass,
                Action::Drop => Response::Drop,
                Action::Rewrite(header, longer) => {
                    Response::Rewritten { header, packet_len: packet_len.saturating_add_signed(*longer) }
                }
            };
            self.responder.respond(response).expect("the test's rewrites fit");
        }
        if self.responder.publish() {
            self.bell.ring();
        }
        count.unwrap_or(0)
    }

    /// Passes all packets.
    pub(crate) fn pass_all(&mut self) -> usize {
        self.answer(32, &mut |_, _| Action::Pass)
    }
}

/// Polls; returns serial number and disposition of each released packet.
pub(crate) fn poll(mediator: &mut Mediator<TestPacket>, now: u64) -> Vec<(u32, Disposition)> {
    let mut out = Vec::new();
    mediator.poll(now, usize::MAX, |r| out.push((r.packet.serial, r.disposition)));
    out
}

/// Returns serial number and disposition of the packet that a submission released.
pub(crate) fn released(packet: Option<ReleasedPacket<TestPacket>>) -> Option<(u32, Disposition)> {
    packet.map(|r| (r.packet.serial, r.disposition))
}

pub(crate) const PASS: Disposition = Disposition::Pass;

pub(crate) const fn dropped(reason: Reason) -> Disposition {
    Disposition::Drop(reason)
}

/// The counters of one VM and direction.
pub(crate) fn counts(m: &Mediator<TestPacket>, tenant: usize, vm: usize, d: Direction) -> DirectionCounts {
    m.counters().tenants[tenant].vms[vm].direction(d).read()
}

/// Tenants 0 and 1, whose second VMs have the same address, 10.0.0.9, in networks 5 and 6.
pub(crate) fn overlapping() -> Config {
    let mut config = tenants(2);
    for (tenant, network) in [(0, 5), (1, 6)] {
        let vm = &mut config.tenants[tenant].vms[1];
        (vm.addresses, vm.network) = (vec![ip(9)], Some(network));
    }
    config
}
