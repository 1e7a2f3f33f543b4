//! Reasons why the NIC switch does not do what it was asked for.

use std::io;
use std::path::PathBuf;

use p4shield_links::LinkError;

/// Reason why the NIC switch failed.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// The ports contradict each other or the switch's limits. Nothing changed.
    #[error("the ports of the NIC switch cannot be used: {0}")]
    Ports(String),
    /// The folder for pinned objects cannot be used.
    #[error("cannot use {} for the NIC switch{remedy}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The remedy, if it is known.
        remedy: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The pinned maps are another network namespace's.
    #[error(
        "the NIC switch in {} is that of another network namespace; use it there, or choose another folder",
        _0.display()
    )]
    Foreign(PathBuf),
    /// The kernel lacks what the hook in traffic control needs.
    #[error(
        "the NIC switch cannot run in traffic control: the kernel needs tcx (Linux 6.6, CONFIG_NET_XGRESS), \
         BTF (CONFIG_DEBUG_INFO_BTF) and net.core.bpf_jit_enable = 1; write nic_switch = \"xdp\""
    )]
    NoTrafficControl,
    /// The interfaces of this network namespace cannot be listed.
    #[error("cannot list the network interfaces")]
    Interfaces(#[source] io::Error),
    /// A port cannot be served.
    #[error("cannot {step} {interface}{remedy}")]
    Port {
        /// The step that failed.
        step: &'static str,
        /// The interface.
        interface: String,
        /// The remedy, if it is known.
        remedy: &'static str,
        /// The cause.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The driver of a compartment's port does not leave checksums to the kernel.
    #[error("cannot have the kernel write the checksums of frames for {interface}")]
    Checksums {
        /// The interface.
        interface: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The driver of a compartment's port does not leave the division of packets to the kernel.
    #[error("a compartment's port of the NIC switch would get undivided packets")]
    Undivided(#[source] LinkError),
    /// An interface that is no port any more cannot be set down, so it stays closed.
    #[error("an interface leaves the NIC switch")]
    Leaves(#[source] LinkError),
    /// A network card cannot be the NIC switch.
    #[error("cannot use {card} as the NIC switch: {reason}")]
    Card {
        /// The interface of its physical function.
        card: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// A port's virtual function of a network card cannot be set.
    #[error("cannot serve the port {port} with {card}{remedy}")]
    Function {
        /// The interface of the card's physical function.
        card: String,
        /// The port's interface.
        port: String,
        /// The remedy, if it is known.
        remedy: &'static str,
        /// The cause.
        #[source]
        source: LinkError,
    },
    /// The kernel does not tell about a network card, or does not reset a virtual function.
    #[error("a network card fails as the NIC switch")]
    CardRefused(#[source] LinkError),
    /// A bridge cannot be the NIC switch.
    #[error("cannot use the bridge {bridge} as the NIC switch: {reason}")]
    Bridge {
        /// The bridge's name.
        bridge: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// Rules of nftables cannot be read or set.
    #[error("cannot use nftables for {table}: {reason}")]
    Rules {
        /// The name of their table or bridge.
        table: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// The kernel does not tell about a bridge, or does not change it.
    #[error("the bridge {bridge} fails as the NIC switch")]
    BridgeRefused {
        /// The bridge's name.
        bridge: String,
        /// The cause.
        #[source]
        source: LinkError,
    },
    /// A port cannot be served by a bridge.
    #[error("the bridge {bridge} cannot serve the port {port}: {reason}")]
    BridgePort {
        /// The bridge's name.
        bridge: String,
        /// The port's interface.
        port: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// The kernel refused a program or a map.
    #[error("cannot {step} of the NIC switch{}", denied(source))]
    Kernel {
        /// The step that failed.
        step: &'static str,
        /// The cause.
        #[source]
        source: libbpf_rs::Error,
    },
}

impl NicError {
    pub(crate) fn kernel(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |source| Self::Kernel { step, source }
    }
}

fn denied(error: &libbpf_rs::Error) -> &'static str {
    let is_denied = error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
    if is_denied { ": CAP_NET_ADMIN and CAP_BPF are needed" } else { "" }
}
