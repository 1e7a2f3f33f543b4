//! `p4shield agent`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use p4shield_agent::HandshakeStatus;
use p4shield_agent::PageLocation;
use p4shield_agent::config::{AgentConfig, HandshakeConfig, InterfaceConfig, Threshold};
use p4shield_agent::control::{Answer, Request, send_request};

use crate::identity::Identity;
use p4shield_console::{Exit, output, signals, units};

/// Publish in-VM information (in the user VM)
///
/// The agent publishes sealed snapshots of what the tenant's programs may know of this VM; the other
/// subcommands send requests to the running agent.
///
/// Examples:
///
///   p4shield agent run --tenant alice --vm web --key alice.key --info-page pci:auto --interface eth0
///   p4shield agent run --tenant alice --vm web --key /run/p4shield/web.key --info-page pci:auto \
///     --handshake-page pci:auto --policy policy.toml      agree on the key with the P4 VM
///   p4shield agent set 3 1                    programs read it with get_app_value(3)
///   p4shield agent set queue 7 --for-ms 500   a named slot, for half a second
///   p4shield agent status
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish snapshots until stopped
    Run(Box<Run>),
    /// Set a value that programs read with get_app_value(SLOT)
    Set {
        /// Slot 0 to 63, or a name given with `agent run --name`
        key: String,
        /// The value
        value: u64,
        /// Make it unknown again after this many milliseconds
        #[arg(long, value_name = "MS")]
        for_ms: Option<u64>,
        #[command(flatten)]
        socket: Socket,
    },
    /// Make a value unknown
    Unset {
        /// Slot or name
        key: String,
        #[command(flatten)]
        socket: Socket,
    },
    /// List the values that are set
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
    /// Measure publishing to and reading from an unused info page; its contents are lost
    Measure {
        /// The page: a file, pci:ADDRESS or pci:auto
        #[arg(long, value_name = "LOCATION")]
        info_page: PageLocation,
        /// Publications to take the average of
        #[arg(long, default_value_t = 20_000)]
        times: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the agent's status
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        socket: Socket,
    },
}

#[derive(Debug, clap::Args)]
struct Socket {
    /// The agent's control socket
    #[arg(long, value_name = "PATH", default_value = "/run/p4shield/agent.sock")]
    socket: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    identity: Identity,
    /// The info page that this VM shares with its P4 VM: a file, or the memory of an ivshmem device:
    /// pci:0000:00:05.0, or pci:auto for the only device of the right size
    #[arg(long, value_name = "LOCATION")]
    info_page: PageLocation,
    #[command(flatten)]
    handshake: Handshake,
    /// An interface whose packet rates are published; may be repeated; programs number the interfaces
    /// from 0. A link speed in Mbit/s may follow a colon: eth0:10000
    #[arg(long = "interface", value_name = "NAME[:MBPS]", value_parser = interface)]
    interfaces: Vec<InterfaceConfig>,
    /// Used TCP memory above which programs shed load: 64MiB, or a share of the kernel's hard limit: 90%
    #[arg(long, value_name = "SIZE", value_parser = threshold, default_value = "90%")]
    tcp_threshold: Threshold,
    /// Time between publications, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10)]
    interval_ms: u64,
    /// A name for a slot of application values: queue_depth=3; may be repeated
    #[arg(long = "name", value_name = "NAME=SLOT", value_parser = slot_name)]
    names: Vec<(String, u32)>,
    /// The file that keeps an epoch from being used twice; it must survive restarts
    #[arg(long, value_name = "FILE", default_value = "/var/lib/p4shield/info.epoch")]
    state: PathBuf,
    #[command(flatten)]
    socket: Socket,
}

/// How the agent agrees on a key with the P4 VM, where the operator writes key = "handshake".
#[derive(Debug, clap::Args)]
struct Handshake {
    /// Agree on the key with the P4 VM through this page, shared like the info page, and write it to the
    /// file of --key, from which the auditor reads it
    #[arg(long, value_name = "LOCATION", requires = "policy")]
    handshake_page: Option<PageLocation>,
    /// The attestation policy that the P4 VM has to meet (see `p4shield policy check`)
    #[arg(long, value_name = "FILE", requires = "handshake_page")]
    policy: Option<PathBuf>,
    /// This agent's own key, made by `p4shield keygen`; its public half (`p4shield key public`) is the
    /// operator's agent_key. Without it a new one at each start, for agent_key = "any"
    #[arg(long, value_name = "FILE", requires = "handshake_page")]
    agent_key: Option<PathBuf>,
    /// The tenant's age_limit, milliseconds; no key is agreed on with a P4 VM that has another one
    #[arg(long, value_name = "MS", default_value_t = 500)]
    age_limit_ms: u32,
    /// The tenant's no_program; no key is agreed on with a P4 VM that has another one
    #[arg(long, default_value = "pass", value_parser = ["pass", "drop", "skip"])]
    no_program: String,
}

impl Handshake {
    fn config(self) -> Option<HandshakeConfig> {
        Some(HandshakeConfig {
            page: self.handshake_page?,
            policy: self.policy?,
            agent_key: self.agent_key,
            age_limit_ms: self.age_limit_ms,
            passes_without_program: self.no_program == "pass",
        })
    }
}

impl Args {
    /// Runs the command.
    ///
    /// # Errors
    /// It fails; the error names what, and what to do.
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Run(run) => return run.run(),
            Command::Set { key, value, for_ms, socket } => {
                send_request(&socket.socket, &Request::Set { key, value, for_ms })?;
            }
            Command::Unset { key, socket } => {
                send_request(&socket.socket, &Request::Unset { key })?;
            }
            Command::List { json, socket } => print(&send_request(&socket.socket, &Request::List)?, json)?,
            Command::Measure { info_page, times, json } => measure(&info_page, times, json)?,
            Command::Status { json, socket } => {
                print(&send_request(&socket.socket, &Request::Status)?, json)?
            }
        }
        Ok(Exit::Done)
    }
}

impl Run {
    fn run(self) -> anyhow::Result<Exit> {
        let mut config = AgentConfig::new(self.identity.into(), self.info_page);
        config.handshake = self.handshake.config();
        config.epoch_file = self.state;
        config.socket = self.socket.socket;
        config.interval_ms = self.interval_ms;
        config.threshold = self.tcp_threshold;
        config.interfaces = self.interfaces;
        config.names = self.names.into_iter().collect();
        p4shield_agent::run_agent(&config, &*signals::stop_flag()?)?;
        Ok(Exit::Done)
    }
}

fn measure(page: &PageLocation, times: u32, json: bool) -> anyhow::Result<()> {
    let measured = p4shield_agent::page::measure(page, times)?;
    if json {
        return output::json(&measured);
    }
    for m in &measured {
        output::line(format_args!(
            "{:<24} {:>9.0} ns to publish {:>9.0} ns to read",
            m.mapping, m.publish_ns, m.read_ns
        ));
    }
    Ok(())
}

fn print(answer: &Answer, json: bool) -> anyhow::Result<()> {
    match answer {
        Answer::Values(values) if json => output::json(values)?,
        Answer::Status(status) if json => output::json(status)?,
        Answer::Values(values) => {
            for v in values {
                let name = v.name.as_deref().unwrap_or("-");
                let left = v.expires_in_ms.map(|ms| format!("  for {:?}", Duration::from_millis(ms)));
                output::line(format_args!(
                    "{:>2} {name:<16} {}{}",
                    v.slot,
                    v.value,
                    left.unwrap_or_default()
                ));
            }
        }
        Answer::Status(s) => {
            output::line(format_args!("{}/{}: {} snapshots published", s.tenant, s.vm, s.published));
            output::line(format_args!(
                "every {} ms for {:.0} s, {} failed, {} missed, {:.2}% of a core",
                s.interval_ms, s.uptime_s, s.failed, s.missed, s.cpu_percent
            ));
            s.handshake.iter().for_each(print_handshake);
            for (field, value) in &s.known {
                output::line(format_args!("  field {field:>3}  {value}"));
            }
        }
        Answer::Done => {}
    }
    Ok(())
}

fn print_handshake(handshake: &HandshakeStatus) {
    match (&handshake.session, &handshake.error) {
        (Some(s), _) => {
            let transcript = s.transcript.get(..16).unwrap_or_default();
            output::line(format_args!("session {transcript} with the P4 VM: {}", s.standing));
        }
        (None, Some(error)) => output::line(format_args!("no session with the P4 VM: {error}")),
        (None, None) => output::line("no session with the P4 VM yet"),
    }
}

fn interface(text: &str) -> Result<InterfaceConfig, String> {
    let (name, speed) = match text.split_once(':') {
        None => (text, None),
        Some((name, speed)) => {
            (name, Some(speed.parse().map_err(|_| format!("{speed:?} is not a speed in Mbit/s"))?))
        }
    };
    Ok(InterfaceConfig { name: name.into(), speed_mbps: speed })
}

fn threshold(text: &str) -> Result<Threshold, String> {
    match text.strip_suffix('%') {
        None => units::bytes(text).map(Threshold::Bytes),
        Some(percent) => match percent.parse::<f64>() {
            Ok(p) if (0.0..=100.0).contains(&p) => Ok(Threshold::Fraction(p / 100.0)),
            _ => Err(format!("{percent:?} is not a percentage from 0 to 100")),
        },
    }
}

fn slot_name(text: &str) -> Result<(String, u32), String> {
    let (name, slot) = text.split_once('=').ok_or("write NAME=SLOT, for example queue_depth=3")?;
    Ok((name.into(), slot.parse().map_err(|_| format!("{slot:?} is not a slot number"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_thresholds_and_names_are_parsed() {
        assert_eq!(interface("eth0").unwrap().speed_mbps, None);
        assert_eq!(interface("eth0:10000").unwrap().speed_mbps, Some(10_000));
        assert!(interface("eth0:fast").is_err());
        assert_eq!(threshold("50%"), Ok(Threshold::Fraction(0.5)));
        assert_eq!(threshold("1MiB"), Ok(Threshold::Bytes(1 << 20)));
        assert!(threshold("101%").is_err());
        assert_eq!(slot_name("load=3"), Ok(("load".into(), 3)));
        assert!(slot_name("load").is_err());
    }
}
