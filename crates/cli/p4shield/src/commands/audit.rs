//! `p4shield audit`.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use p4shield_agent::config::AuditConfig;
use p4shield_agent::{Event, PageLocation, run_audit};
use serde::Serialize;

use super::identity::Identity;
use p4shield_console::{Exit, output, signals};

/// Verify that every packet went through the program (in the user VM)
///
/// Compares the P4 VM's execution log with the packets on this VM's interface, until stopped. Run it
/// as root: it attaches a packet counter to the interface. Without the privileges for that it compares
/// the log with the interface's own counters and reports what these cannot show.
///
/// Example:
///
///   p4shield audit --tenant alice --vm web --key alice.key --log-page pci:auto --interface eth0
///
/// Exit codes: 0 every packet went through, 10 packets bypassed the program, 11 packets were
/// swapped, 12 the program judged packets that this VM never sent, 13 judged packets never arrived,
/// 14 the log was forged or replayed, 15 the log stopped or is late, 16 the P4 VM restarted, 17 no
/// finding and no proof, 18 the P4 VM refused forged or replayed information of this VM.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    identity: Identity,
    /// The log page that this VM shares with its P4 VM: a file, or the memory of an ivshmem device:
    /// pci:0000:00:06.0, or pci:auto for the only device of the right size
    #[arg(long, value_name = "LOCATION")]
    log_page: PageLocation,
    /// The interface that the program guards
    #[arg(long)]
    interface: String,
    /// An address of this VM; may be repeated. Only for a port that VMs share, where the mediator finds
    /// this VM's packets by address; on a port of this VM's own, where every packet is judged, name none
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
    /// Stop after this many seconds; default: when interrupted
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Time between the P4 VM's log records, milliseconds
    #[arg(long, value_name = "MS")]
    log_interval_ms: Option<u64>,
    /// Longest time that the mediator may hold a packet (the tenant's deadline), milliseconds
    #[arg(long, value_name = "MS")]
    hold_ms: Option<u64>,
    /// Audit this direction only: ingress (to this VM) or egress (from it). For a VM without a program in
    /// the other direction and with `no_program = "skip"`: its log does not cover that direction
    #[arg(long, value_name = "DIRECTION", value_parser = ["ingress", "egress"])]
    only: Option<String>,
    /// Compare with the interface's counters only
    #[arg(long)]
    counters_only: bool,
    /// Print one JSON object a line: each event with `words`, then the summary
    #[arg(long)]
    json: bool,
}

/// An event or the summary, with its text.
#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(flatten)]
    content: &'a T,
    words: String,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let mut config =
            AuditConfig::new(self.identity.into(), self.log_page, self.interface, self.addresses);
        config.counters_only = self.counters_only;
        config.log_interval_ms = self.log_interval_ms.unwrap_or(config.log_interval_ms);
        config.hold_ms = self.hold_ms.unwrap_or(config.hold_ms);
        let only = |other| self.only.as_deref() != Some(other);
        (config.ingress, config.egress) = (only("egress"), only("ingress"));
        let stop = signals::stop_flag()?;
        if let Some(seconds) = self.seconds {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(seconds));
                stop.store(true, Ordering::Relaxed);
            });
        }
        let json = self.json;
        let summary = run_audit(&config, |event| print(event, json), &stop)?;
        if json {
            output::json(&Line { content: &summary, words: summary.to_string() })?;
        } else {
            output::line(&summary);
        }
        Ok(if summary.exit_code == 0 { Exit::Done } else { Exit::Finding(summary.exit_code) })
    }
}

fn print(event: &Event, json: bool) {
    if json {
        // Serialising plain data does not fail; if it did, the text would still reach the user.
        if output::json(&Line { content: event, words: event.to_string() }).is_err() {
            output::note(event);
        }
    } else {
        output::line(event);
    }
}
