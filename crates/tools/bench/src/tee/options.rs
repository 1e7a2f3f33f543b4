//! The options of a measurement.

use serde::Serialize;

/// The kind of a switch's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Ports {
    /// Memory, which always has packets, and discards what it is sent.
    Memory,
    /// Two `net_null` devices of DPDK, which do the same.
    NetNull,
    /// AF_XDP on veth, with a sender at rising rates.
    Veth,
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Ports of the switch
    #[arg(long, value_delimiter = ',', default_values = ["memory", "net_null", "veth"])]
    pub ports: Vec<Ports>,
    /// Bytes of a packet, without the frame check sequence
    #[arg(long, value_delimiter = ',', default_values = ["64", "512", "1500"], value_name = "BYTES",
        value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub bytes: Vec<u16>,
    /// Packet threads of switches on memory and net_null, each on a core of its own
    #[arg(long, value_delimiter = ',', default_values = ["1", "2"], value_name = "THREADS",
        value_parser = clap::value_parser!(u8).range(1..=2))]
    pub threads: Vec<u8>,
    /// Rounds of each figure
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Milliseconds of a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub milliseconds: u32,
}
