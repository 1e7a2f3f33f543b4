//! `p4shield audit`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use p4shield_agent::audit::expect::ExpectedProgram;
use p4shield_agent::audit::finding::Digest;
use p4shield_agent::audit::settings::ExpectedSettings;
use p4shield_agent::config::AuditConfig;
use p4shield_agent::{Event, PageLocation, run_audit};
use serde::Serialize;

use crate::bundled;
use crate::identity::Identity;
use p4shield_console::{Exit, output, signals};

/// Verify that every packet went through the expected program (in the user VM)
///
/// Compares the P4 VM's execution log with the packets on this VM's interface, until stopped. Run it
/// as root: it attaches a packet counter to the interface. Without the privileges for that it compares
/// the log with the interface's own counters and reports what these cannot show.
///
/// Name the programs that the provider should run: without them the audit cannot tell your program
/// from another one, and ends with code 17.
///
/// Examples:
///
///   p4shield audit --tenant alice --vm web --key alice.key --log-page pci:auto --interface eth0 \
///     --expect-ingress guard.o --expect-egress none
///   ... --expect-ingress guard.o,extern.o              a program of several objects
///   ... --expect-ingress old.o --expect-ingress new.o --replacements 1
///   ... --bundle web.bundle --bundle-key alice.bundle.pub    both directions of a signed bundle
///
/// Exit codes: 0 every packet that arrived went through the expected program, 10 packets bypassed the
/// program, 11 packets were swapped, 12 the program judged packets that this VM never sent, 13 more
/// packets than accepted were lost after judgment, 14 the log was forged or replayed, 15 the log
/// stopped or is late, 16 the P4 VM restarted, 17 no finding and no proof, 18 the P4 VM refused forged
/// or replayed information of this VM, 19 another program judged, 20 no program judged, 21 a
/// replacement was not announced, 22 the header copies are too short, 23 the interface was plugged
/// anew, 24 packets passed while no tap was attached, 25 the tap moved, 26 too few packets were compared, 27
/// no packet arrived that could be verified, 28 the P4 VM judges under another setting than expected.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
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
    /// Time after a replacement of the key file in which the log may have the previous key: the tenant's
    /// `key_window`, milliseconds; 600000 if not given
    #[arg(long, value_name = "MS")]
    key_window_ms: Option<u64>,
    /// Longest time that the mediator may hold a packet (the tenant's deadline), milliseconds
    #[arg(long, value_name = "MS")]
    hold_ms: Option<u64>,
    /// Audit this direction only: ingress (to this VM) or egress (from it). For a VM without a program in
    /// the other direction and with `no_program = "skip"`: its log does not cover that direction
    #[arg(long, value_name = "DIRECTION", value_parser = ["ingress", "egress"])]
    only: Option<String>,
    /// The program that should judge packets to this VM: its eBPF objects, separated by commas, as
    /// `p4shield verify` takes them; the digest that this prints; or `none`. May be repeated, if the
    /// program is replaced
    #[arg(long = "expect-ingress", value_name = "OBJECTS|DIGEST|none")]
    ingress: Vec<String>,
    /// The program that should judge packets from this VM
    #[arg(long = "expect-egress", value_name = "OBJECTS|DIGEST|none")]
    egress: Vec<String>,
    /// The signed bundle that the provider should run: takes the programs of both directions and the least
    /// number of header bytes from it. May be repeated, if the bundle is replaced
    #[arg(long, value_name = "FILE", requires = "bundle_key", conflicts_with_all = ["ingress", "egress"])]
    bundle: Vec<PathBuf>,
    /// The public key that has to have signed the bundle
    #[arg(long, value_name = "FILE", requires = "bundle")]
    bundle_key: Option<PathBuf>,
    /// How many replacements of programs you announce for the time of the audit
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    replacements: u32,
    /// Least number of header bytes that the P4 VM has of a packet (the tenant's `header_bytes`)
    #[arg(long, value_name = "BYTES")]
    min_header_bytes: Option<u32>,
    #[command(flatten)]
    settings: SettingArgs,
    /// Packets that may be lost between P4 VM and this VM, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    max_loss: Option<u32>,
    /// Packets that have to be compared by their contents, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    min_compared: Option<u32>,
    /// Compare with the interface's counters only
    #[arg(long)]
    counters_only: bool,
    /// Print one JSON object a line: each event with `words`, then the summary
    #[arg(long)]
    json: bool,
    /// Print no status, which is otherwise a line each second: for a service
    #[arg(long)]
    quiet: bool,
}

/// The settings that the P4 VM should have beside programs and header bytes.
#[derive(Debug, clap::Args)]
struct SettingArgs {
    /// The longest age limit of information that you accept (the tenant's `age_limit`), milliseconds; 500 if
    /// not given
    #[arg(long, value_name = "MS")]
    expect_age_limit: Option<u32>,
    /// The tenant's `budget`; any if not given
    #[arg(long, value_name = "INSTRUCTIONS")]
    expect_budget: Option<u64>,
    /// What happens to packets while a direction has no program (the tenant's `no_program`, or `fail` of a
    /// program that is configured); either if not given
    #[arg(long, value_name = "VERDICT", value_parser = ["pass", "drop"])]
    expect_no_program: Option<String>,
    /// Digest of the whole configuration, as an audit states it and the how-to "Audit" computes it; any if
    /// not given
    #[arg(long, value_name = "DIGEST")]
    expect_configuration: Option<Digest>,
}

impl SettingArgs {
    /// Returns the settings that the P4 VM should have.
    fn expected(&self) -> ExpectedSettings {
        let default = ExpectedSettings::default();
        ExpectedSettings {
            age_limit_ms: self.expect_age_limit.unwrap_or(default.age_limit_ms),
            budget: self.expect_budget,
            passes_without_program: self.expect_no_program.as_deref().map(|verdict| verdict == "pass"),
            configuration: self.expect_configuration,
        }
    }
}

/// An event or the summary, with its text.
#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(flatten)]
    content: &'a T,
    words: String,
}

impl Args {
    /// Runs the command.
    ///
    /// # Errors
    /// It fails; the error names what, and what to do.
    pub fn run(self) -> anyhow::Result<Exit> {
        let mut config =
            AuditConfig::new(self.identity.into(), self.log_page, self.interface, self.addresses);
        config.counters_only = self.counters_only;
        config.log_interval_ms = self.log_interval_ms.unwrap_or(config.log_interval_ms);
        config.key_window_ms = self.key_window_ms.unwrap_or(config.key_window_ms);
        config.hold_ms = self.hold_ms.unwrap_or(config.hold_ms);
        let only = |other| self.only.as_deref() != Some(other);
        (config.ingress, config.egress) = (only("egress"), only("ingress"));
        config.expected.programs = [expected(&self.ingress)?, expected(&self.egress)?];
        config.expected.replacements = self.replacements;
        config.expected.settings = self.settings.expected();
        if let Some(key) = &self.bundle_key {
            bundled::expect(&mut config, &self.bundle, key)?;
        }
        let header_bytes = &mut config.expected.header_bytes;
        *header_bytes = self.min_header_bytes.unwrap_or(*header_bytes);
        config.max_loss_ppm = self.max_loss.unwrap_or(config.max_loss_ppm);
        config.min_compared_ppm = self.min_compared.unwrap_or(config.min_compared_ppm);
        let stop = signals::stop_flag()?;
        if let Some(seconds) = self.seconds {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(seconds));
                stop.store(true, Ordering::Relaxed);
            });
        }
        let (json, quiet) = (self.json, self.quiet);
        let is_wanted = |event: &Event| !(quiet && matches!(event, Event::Standing(_)));
        let sink = |event: &Event| {
            if is_wanted(event) {
                print(event, json);
            }
        };
        let summary = run_audit(&config, sink, &stop)?;
        if json {
            output::json(&Line { content: &summary, words: summary.to_string() })?;
        } else {
            output::line(&summary);
        }
        Ok(if summary.exit_code == 0 { Exit::Done } else { Exit::Finding(summary.exit_code) })
    }
}

/// Parses a percentage as millionths.
fn percent(text: &str) -> Result<u32, String> {
    let percent: f64 = text.trim_end_matches('%').parse().map_err(|_| "this is no number".to_owned())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err("a percentage is between 0 and 100".to_owned());
    }
    Ok((percent * 10_000.0).round() as u32)
}

/// Returns the programs that the arguments of one direction name.
fn expected(programs: &[String]) -> anyhow::Result<ExpectedProgram> {
    if programs.is_empty() {
        return Ok(ExpectedProgram::Unknown);
    }
    if programs == ["none"] {
        return Ok(ExpectedProgram::None);
    }
    programs.iter().map(|p| digest(p)).collect::<anyhow::Result<_>>().map(ExpectedProgram::OneOf)
}

/// Returns a digest, or that of the program in these objects, as the P4 VM computes it.
fn digest(text: &str) -> anyhow::Result<Digest> {
    if let Ok(digest) = text.parse() {
        return Ok(digest);
    }
    let objects: Vec<PathBuf> = text.split(',').map(PathBuf::from).collect();
    Ok(Digest(crate::objects::load(&objects)?.digest()))
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
