//! `p4shield-dev bench tenants`: what switches of level 2 cost: time to make, to check and to remove them,
//! their memory, and their processor time while no packet passes.

mod usage;

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use crate::args::seconds;
use crate::fixture::cloud::{Cloud, OUTSIDE, users};
use crate::stats::Spread;

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Tenants, each with a VM
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=250))]
    pub tenants: u16,
    /// Seconds without a packet
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    pub time: Duration,
}

/// Seconds that `p4shield topology` takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Seconds {
    /// `apply` while there is nothing.
    pub apply: f64,
    /// `apply` of the same again.
    pub unchanged: f64,
    /// `delete`.
    pub delete: f64,
}

/// Memory and processor time of each compartment; `rounds` are the compartments.
#[derive(Clone, Debug, Serialize)]
pub struct Compartments {
    /// Million bytes of memory, each page divided by the number of its users (PSS).
    pub pss_mb: Spread,
    /// Million bytes, with pages that others use, too (RSS).
    pub rss_mb: Spread,
    /// Percent of a core while no packet passes.
    pub idle_percent: Spread,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Tenants, which have a compartment each.
    pub tenants: u16,
    /// Times.
    pub seconds: Seconds,
    /// Memory and processor time.
    pub compartments: Compartments,
}

/// Steps that [`run`] reports.
pub const STEPS: usize = 5;

/// Measures; calls `progress` before each step.
///
/// # Errors
/// The switches cannot be made, a VM does not reach the outside, or something is left.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    progress("the host and its VMs".into());
    let vms: Vec<_> = (1..=options.tenants).map(|n| [format!("t{n}"), "vm".to_owned()]).collect();
    let cloud = Cloud::make(&vms)?;
    cloud.configure("2")?;
    progress("apply".into());
    let apply = timed(&cloud, "apply")?;
    for vm in &cloud.vms {
        cloud.await_ping(&vm.ns, OUTSIDE)?;
    }
    progress("apply again".into());
    let unchanged = timed(&cloud, "apply")?;
    progress("idle".into());
    let compartments = compartments(options)?;
    progress("delete".into());
    let delete = timed(&cloud, "delete")?;
    ensure!(usage::of_users(&users())?.is_empty(), "processes are left after p4shield topology delete");
    Ok(Report { tenants: options.tenants, seconds: Seconds { apply, unchanged, delete }, compartments })
}

fn timed(cloud: &Cloud, action: &str) -> anyhow::Result<f64> {
    let start = Instant::now();
    cloud.topology(action)?;
    Ok(start.elapsed().as_secs_f64())
}

fn compartments(options: &Options) -> anyhow::Result<Compartments> {
    // Behind the announcements that apply has the switches send.
    std::thread::sleep(Duration::from_secs(2));
    let before = usage::of_users(&users())?;
    let start = Instant::now();
    std::thread::sleep(options.time);
    let (after, time) = (usage::of_users(&users())?, start.elapsed());
    ensure!(
        before.keys().eq(after.keys()) && after.len() == usize::from(options.tenants),
        "{} of {} compartments run",
        after.len(),
        options.tenants
    );
    let idle = |(user, after): (&u32, &usage::Usage)| {
        let took = after.processor.saturating_sub(before[user].processor);
        100.0 * took.div_duration_f64(time)
    };
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    Ok(Compartments {
        pss_mb: Spread::of(after.values().map(|u| megabytes(u.pss)).collect()),
        rss_mb: Spread::of(after.values().map(|u| megabytes(u.rss)).collect()),
        idle_percent: Spread::of(after.iter().map(idle).collect()),
    })
}
