//! The structure of the file. Values that `check` validates keep their position. `reference` describes each
//! key.

use super::units::Quantity;
use serde::Deserialize;
use std::path::PathBuf;
use toml::Spanned;

/// Text with its position.
pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) attachment: Option<Text>,
    pub(super) placement: Option<Text>,
    pub(super) compartment: Option<Text>,
    pub(super) tee: Option<Text>,
    pub(super) level: Option<Text>,
    pub(super) daemon: Option<Daemon>,
    pub(super) machine: Option<Machine>,
    pub(super) topology: Option<Topology>,
    #[serde(default)]
    pub(super) tenant: Vec<Tenant>,
    #[serde(default)]
    pub(super) wire: Vec<Wire>,
    #[serde(default)]
    pub(super) port: Vec<Port>,
    #[serde(default)]
    pub(super) tunnel: Vec<Tunnel>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Daemon {
    pub(super) socket: Option<PathBuf>,
    pub(super) metrics: Option<Text>,
    #[serde(default)]
    pub(super) allow_missing: Vec<Text>,
    pub(super) guard: Option<Text>,
    pub(super) first_uid: Option<Spanned<u32>>,
    pub(super) attach_socket: Option<PathBuf>,
    #[serde(default)]
    pub(super) switch_uids: Vec<u32>,
    #[serde(default)]
    pub(super) switch_gids: Vec<u32>,
    pub(super) ovsdb: Option<PathBuf>,
    pub(super) state: Option<PathBuf>,
    pub(super) adoption_time: Option<Spanned<Quantity>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Machine {
    pub(super) image: Option<Spanned<PathBuf>>,
    pub(super) qemu: Option<Spanned<PathBuf>>,
    pub(super) accelerator: Option<Text>,
    pub(super) processors: Option<Spanned<u32>>,
    pub(super) firmware: Option<Spanned<PathBuf>>,
    pub(super) processor: Option<Text>,
    pub(super) quote_service: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    pub(super) uplink: Text,
    pub(super) gateway_mac: Text,
    pub(super) host: Option<Spanned<u16>>,
    pub(super) cores: Option<Text>,
    pub(super) switch: Option<Text>,
    pub(super) datapath: Option<Text>,
    pub(super) nic_switch: Option<Text>,
    pub(super) outside_vlan: Option<Spanned<u16>>,
    pub(super) compartment: Option<Text>,
    pub(super) image: Option<Spanned<PathBuf>>,
    pub(super) first_vlan: Option<Spanned<u16>>,
    pub(super) memory: Option<Spanned<Quantity>>,
    pub(super) huge_pages: Option<Spanned<Quantity>>,
    pub(super) state: Option<PathBuf>,
    pub(super) run: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenant {
    pub(super) name: Text,
    pub(super) compartment: Option<Text>,
    pub(super) tee: Option<Text>,
    pub(super) zone: Option<Text>,
    pub(super) key_file: Option<Spanned<PathBuf>>,
    pub(super) evidence: Option<Text>,
    pub(super) bundle_key: Option<Spanned<PathBuf>>,
    pub(super) socket: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) socket_uids: Vec<u32>,
    #[serde(default)]
    pub(super) socket_gids: Vec<u32>,
    pub(super) key_window: Option<Spanned<Quantity>>,
    pub(super) fail: Option<Text>,
    pub(super) no_program: Option<Text>,
    pub(super) deadline: Option<Spanned<Quantity>>,
    pub(super) stall: Option<Spanned<Quantity>>,
    pub(super) max_held: Option<Spanned<usize>>,
    pub(super) header_bytes: Option<Spanned<u32>>,
    pub(super) headroom: Option<Spanned<u32>>,
    pub(super) slots: Option<Spanned<u32>>,
    pub(super) age_limit: Option<Spanned<Quantity>>,
    pub(super) log_interval: Option<Spanned<Quantity>>,
    pub(super) budget: Option<Spanned<u64>>,
    pub(super) memory: Option<Spanned<Quantity>>,
    pub(super) cpu_percent: Option<Spanned<u32>>,
    pub(super) cpu: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) busy: bool,
    pub(super) delay: Option<Spanned<Quantity>>,
    pub(super) controllers: Option<Controllers>,
    #[serde(default)]
    pub(super) vm: Vec<Vm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Controllers {
    pub(super) ovsdb: Option<Text>,
    pub(super) openflow: Option<Text>,
    pub(super) private_key: Spanned<PathBuf>,
    pub(super) certificate: Spanned<PathBuf>,
    pub(super) ca_certificate: Spanned<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vm {
    pub(super) name: Text,
    #[serde(default)]
    pub(super) addresses: Vec<Text>,
    pub(super) interface: Option<Text>,
    pub(super) mac: Option<Text>,
    #[serde(default)]
    pub(super) ingress: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) egress: Vec<Spanned<PathBuf>>,
    pub(super) key: Option<Text>,
    pub(super) bundle: Option<Spanned<PathBuf>>,
    pub(super) key_file: Option<Spanned<PathBuf>>,
    pub(super) handshake_page: Option<Spanned<PathBuf>>,
    pub(super) agent_key: Option<Text>,
    pub(super) info_page: Option<Spanned<PathBuf>>,
    pub(super) log_page: Option<Spanned<PathBuf>>,
    pub(super) page_owner: Option<u32>,
    pub(super) packet_rate: Option<Spanned<u32>>,
    pub(super) iface_id: Option<Text>,
    pub(super) vni: Option<Spanned<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wire {
    pub(super) vm_interface: Text,
    pub(super) switch_interface: Text,
    pub(super) tenant: Text,
    pub(super) vm: Text,
    pub(super) others: Option<Text>,
    #[serde(default)]
    pub(super) own_addresses_only: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Port {
    pub(super) name: Text,
    pub(super) tenant: Option<Text>,
    pub(super) vm: Option<Text>,
    pub(super) role: Option<Text>,
    pub(super) sides: Option<Text>,
    pub(super) zero_copy: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tunnel {
    #[serde(rename = "type")]
    pub(super) kind: Text,
    pub(super) address: Option<Text>,
    pub(super) port: Option<Spanned<u16>>,
}
