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
    /// Two interfaces of this machine, into the first of which a generator sends more than the switch can
    /// forward.
    Interfaces,
}

/// The names of two interfaces.
pub type Pair = [String; 2];

/// Parses the names of two interfaces.
fn pair(text: &str) -> Result<Pair, &'static str> {
    let (first, second) = text.split_once(',').ok_or("give two names, as in eth1,eth2")?;
    Ok([first.to_owned(), second.to_owned()])
}

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Ports of the switch
    #[arg(long, value_delimiter = ',', default_values = ["memory", "net_null", "veth"])]
    pub ports: Vec<Ports>,
    /// Interfaces of `--ports interfaces`: a generator sends into the first, the switch by the second
    #[arg(long, value_name = "IN,OUT", value_parser = pair, required_if_eq("ports", "interfaces"))]
    pub interfaces: Option<Pair>,
    /// Bytes of a packet, without the frame check sequence
    #[arg(long, value_delimiter = ',', default_values = ["64", "512", "1500"], value_name = "BYTES",
        value_parser = clap::value_parser!(u16).range(64..=1500))]
    pub bytes: Vec<u16>,
    /// Packet threads of switches on memory and net_null, each on a core of its own
    #[arg(long, value_delimiter = ',', default_values = ["1", "2"], value_name = "THREADS",
        value_parser = clap::value_parser!(u8).range(1..=2))]
    pub threads: Vec<u8>,
    /// Rows on veth also with virtual machines, emulated unless KVM runs guests here
    #[arg(long)]
    pub machines: bool,
    /// Rounds of each figure
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Milliseconds of a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub milliseconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_two_names() {
        assert_eq!(pair("eth1,eth2").unwrap(), ["eth1", "eth2"]);
        assert_eq!(pair("eth1").unwrap_err(), "give two names, as in eth1,eth2");
    }
}
