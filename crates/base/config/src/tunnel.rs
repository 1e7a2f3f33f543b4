//! Endpoints of tunnels that the switch itself decapsulates: the inner packet is judged.

use super::Attachment;
use super::check::Checker;
use super::file;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Most endpoints of a host.
pub const MAX_TUNNELS: usize = 64;

/// A protocol that carries Ethernet frames in UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TunnelKind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
}

impl TunnelKind {
    /// Returns the UDP port that IANA assigned to the protocol.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Vxlan => 4789,
            Self::Geneve => 6081,
        }
    }
}

/// An endpoint of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tunnel {
    /// Its protocol.
    pub kind: TunnelKind,
    /// Its address; `None`: any address that is no VM's.
    pub address: Option<IpAddr>,
    /// Its UDP port.
    pub port: u16,
}

impl Checker<'_> {
    pub(super) fn tunnels(&mut self, file: &file::File, attachment: Attachment) -> Vec<Tunnel> {
        if let Some(tunnel) = file.tunnel.first().filter(|_| attachment != Attachment::Dpdk) {
            let message = "[[tunnel]] needs attachment = \"dpdk\", the only one that decapsulates \
                           tunnels; remove the table";
            self.problem(tunnel.kind.span(), message.to_owned());
        }
        if let Some(tunnel) = file.tunnel.get(MAX_TUNNELS) {
            let message = format!(
                "there are more than {MAX_TUNNELS} [[tunnel]] tables; write fewer, without the key address"
            );
            self.problem(tunnel.kind.span(), message);
        }
        file.tunnel.iter().map(|t| self.tunnel(t)).collect()
    }

    /// Checks the networks of VMs, which are known for packets from tunnels only.
    pub(super) fn networks(&mut self, file: &file::File, attachment: Attachment) {
        let mut vms = file.tenant.iter().flat_map(|t| &t.vm);
        if let Some(vni) = vms.find_map(|v| v.vni.as_ref()).filter(|_| attachment != Attachment::Dpdk) {
            let message =
                "vni needs attachment = \"dpdk\", the only one that decapsulates tunnels; remove the key";
            self.problem(vni.span(), message.to_owned());
        }
    }

    fn tunnel(&mut self, t: &file::Tunnel) -> Tunnel {
        let kinds = [("vxlan", TunnelKind::Vxlan), ("geneve", TunnelKind::Geneve)];
        let kind = self.word("type", Some(&t.kind), &kinds);
        let address = t.address.as_ref().and_then(|text| {
            let address = text.as_ref().parse().ok();
            if address.is_none() {
                let message = format!(
                    "address: {:?} is not an IP address; write the host's own, or remove the key",
                    text.as_ref()
                );
                self.problem(text.span(), message);
            }
            address
        });
        let port = self.number("port", t.port.as_ref(), kind.default_port(), 1, u16::MAX);
        Tunnel { kind, address, port }
    }
}
