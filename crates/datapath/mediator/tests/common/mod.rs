//! Packets, tenants and P4 VMs for the tests.
#![allow(dead_code, reason = "each test file uses its part of it")]

use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::{
    Doorbell, RequestBatch, Requester, Responder, Response, SharedMemory, create_channel,
};
use p4shield_mediator::{
    AllowedSources, Config, Disposition, Mediator, Network, P4VmChannel, Packet, PortSpec, ReleasedPacket,
    RewriteRefused, Stages, TenantConfig, UnownedPolicy, VmConfig, VmRef,
};
use std::net::{IpAddr, Ipv4Addr};

/// A packet in a vector, with a number that no rewrite changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestPacket {
    pub(crate) serial: u32,
    pub(crate) bytes: Vec<u8>,
}

/// The longest packet that a test packet can become.
pub(crate) const ROOM: usize = 256;

impl Packet for TestPacket {
    fn bytes(&self) -> &[u8] {
        &self.bytes
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
        self.bytes.splice(..old_len, new.iter().copied());
        self.bytes.truncate(new_total_len);
        Ok(())
    }
}

/// Where a test packet carries its number: behind Ethernet and IPv4.
pub(crate) const SERIAL_AT: usize = 34;

/// The address `10.0.0.last`.
pub(crate) fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// A UDP packet between two of them.
pub(crate) fn packet(serial: u32, source: u8, destination: u8) -> TestPacket {
    let mut bytes = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0];
    bytes.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, source, 10, 0, 0, destination]);
    bytes.extend(serial.to_be_bytes());
    bytes.resize(60, 0);
    TestPacket { serial, bytes }
}

pub(crate) fn arp(serial: u32) -> TestPacket {
    let mut bytes = vec![0xff; 12];
    bytes.extend([8, 6]);
    bytes.resize(60, 0);
    TestPacket { serial, bytes }
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

/// Nanoseconds.
pub(crate) const DEADLINE: u64 = 1_000_000;

/// Tenant 0 has 10.0.0.1 and .2, tenant 1 has .11 and .12, and so on; max_held is 8.
pub(crate) fn tenants(count: u8) -> Config {
    let tenants = (0..count).map(|t| TenantConfig {
        max_held: 8,
        deadline: std::time::Duration::from_nanos(DEADLINE),
        ..TenantConfig::new(format!("t{t}"), vec![vm("x", t * 10 + 1), vm("y", t * 10 + 2)])
    });
    Config { tenants: tenants.collect() }
}

pub(crate) fn mediator(config: &Config) -> Mediator<TestPacket> {
    Mediator::new(config).expect("the configuration makes sense")
}

/// The P4 VM's side of a channel.
pub(crate) struct P4vm {
    pub(crate) judge: Responder,
    pub(crate) bell: Doorbell,
    pub(crate) memory: SharedMemory,
    pub(crate) batch: RequestBatch,
}

/// Attaches a P4 VM to a tenant, in place of the one there was.
pub(crate) fn attach(
    mediator: &mut Mediator<TestPacket>,
    now: u64,
    tenant: usize,
    geometry: Geometry,
) -> P4vm {
    let memory = create_channel("test", geometry).expect("memory");
    let judge = Responder::new(memory.map_again().expect("memory"), geometry).expect("valid");
    let hostile = memory.map_again().expect("memory");
    let (doorbell, bell) = Doorbell::pair().expect("sockets");
    let requester = Requester::new(memory, geometry).expect("valid");
    mediator
        .replace_channel(now, tenant, Some(P4VmChannel { requester, doorbell }))
        .expect("there is such a tenant");
    P4vm { judge, bell, memory: hostile, batch: RequestBatch::new(&geometry) }
}

/// What a test's program does.
pub(crate) enum Does {
    Pass,
    Drop,
    /// The new header, and by how many bytes the packet is longer.
    HeaderRewrite(Vec<u8>, i32),
}

impl P4vm {
    /// Answers up to `max` requests by `program` and returns how many.
    pub(crate) fn judge(&mut self, max: usize, program: &mut dyn FnMut(&Request, &[u8]) -> Does) -> usize {
        let mut replies = Vec::new();
        let count = self.judge.fetch_with(max, |request, frame| {
            let mut header = vec![0; frame.len()];
            frame.copy_to(&mut header);
            replies.push((program(request, &header), request.packet_len));
        });
        for (does, packet_len) in replies {
            let reply = match &does {
                Does::Pass => Response::Pass,
                Does::Drop => Response::Drop,
                Does::HeaderRewrite(header, longer) => {
                    Response::Rewritten { header, packet_len: packet_len.saturating_add_signed(*longer) }
                }
            };
            self.judge.respond(reply).expect("the test's rewrites fit");
        }
        if self.judge.publish() {
            self.bell.ring();
        }
        count.unwrap_or(0)
    }

    /// Passes everything.
    pub(crate) fn pass_all(&mut self) -> usize {
        self.judge(32, &mut |_, _| Does::Pass)
    }
}

/// What came out of a poll: number and disposition of each packet.
pub(crate) fn poll(mediator: &mut Mediator<TestPacket>, now: u64) -> Vec<(u32, Disposition)> {
    let mut out = Vec::new();
    mediator.poll(now, usize::MAX, |r| out.push((r.packet.serial, r.disposition)));
    out
}

/// Number and disposition of what came out of a submit.
pub(crate) fn of(released: Option<ReleasedPacket<TestPacket>>) -> Option<(u32, Disposition)> {
    released.map(|r| (r.packet.serial, r.disposition))
}
