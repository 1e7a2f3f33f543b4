//! Reasons why DPDK devices cannot be ports, or no longer are.

use std::io;
use std::path::PathBuf;

/// Reason why a DPDK device cannot be a port, or no longer is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library is missing, or the system cannot load it or the DPDK that it needs.
    #[error(
        "DPDK ports need {}, which cannot be loaded ({why}); install package p4shield-ethdev, or name the \
         file with --dpdk-library",
        path.display()
    )]
    Load {
        /// The expected file.
        path: PathBuf,
        /// The dynamic linker's words.
        why: String,
    },
    /// The library belongs to another version of P4 Shield, or is another library.
    #[error(
        "{} has interface version {found}, and this program needs {needed}; install both from one release",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of its interface.
        found: u32,
        /// Version of this program's.
        needed: u32,
    },
    /// An option is not usable here.
    #[error("DPDK option `{option}`: {why}")]
    Option {
        /// The option.
        option: String,
        /// The reason, and what to do.
        why: &'static str,
    },
    /// EAL does not start.
    #[error(
        "DPDK does not start with the options `{options}`{}; `dpdk-testpmd {options}` tries them \
         alone",
        said(log)
    )]
    Init {
        /// EAL's options.
        options: String,
        /// Its log.
        log: String,
        /// The error number that it left.
        source: io::Error,
    },
    /// EAL runs with other options.
    #[error("DPDK runs in this process already, with the options `{running}`; they cannot change")]
    Running {
        /// Options with which it was started.
        running: String,
    },
    /// DPDK has no such device.
    #[error(
        "there is no DPDK device {device}{}; name a virtual device with its arguments, such as \
         net_af_packet0,iface=eth0, or the PCI address of a device that is bound to vfio-pci",
        said(log)
    )]
    Unknown {
        /// The device.
        device: String,
        /// DPDK's log.
        log: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no device.
    #[error("there is no DPDK device to open")]
    NoDevice,
    /// A device is two ports.
    #[error("{device} is given for two ports; name each device once")]
    Twice {
        /// The device.
        device: String,
    },
    /// A device only receives, or only sends.
    #[error("{device} has {receive} receive queues and {transmit} transmit queues; a port needs one of each")]
    NoQueue {
        /// The device.
        device: String,
        /// Most receive queues.
        receive: u16,
        /// Most transmit queues.
        transmit: u16,
    },
    /// There is no memory for packets.
    #[error(
        "DPDK has no memory for {buffers} packets of {room} bytes{}; give it more: --dpdk with a larger -m, \
         or more huge pages",
        said(log)
    )]
    Memory {
        /// Buffers of the pool.
        buffers: u32,
        /// Bytes of each.
        room: u16,
        /// DPDK's log.
        log: String,
    },
    /// A device does not start.
    #[error("cannot open {device}: cannot {step}{}", said(log))]
    Open {
        /// The device.
        device: String,
        /// The step that failed.
        step: String,
        /// DPDK's log.
        log: String,
        /// The cause.
        source: io::Error,
    },
    /// The calling thread cannot use DPDK.
    #[error(
        "DPDK takes no further thread of this process; use fewer --threads, or start it with fewer lcores \
         (--dpdk)"
    )]
    Thread(#[source] io::Error),
    /// A system call failed.
    #[error("cannot wait for commands with poll(2)")]
    Wait(#[source] io::Error),
}

/// Returns what DPDK logged, as the end of a sentence.
fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; it says: {log}") }
}
