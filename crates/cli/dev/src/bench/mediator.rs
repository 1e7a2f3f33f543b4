//! `p4shield-dev bench mediator`.

use std::time::Duration;

use p4shield_bench::mediator::{Backend, MAX_BURST, Options, Row, run, steps};

use p4shield_console::Exit;
use p4shield_console::output::{self, Progress};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Packets submitted together
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=MAX_BURST as i64))]
    burst: Option<Vec<u16>>,
    /// Header bytes handed over at most
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=9728))]
    header_bytes: Option<Vec<u32>>,
    /// Bytes of a packet
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=2048))]
    packet_bytes: u16,
    /// Only with the P4 VM's end on the mediator's core, off the clock: to profile one thread
    #[arg(long)]
    same_core: bool,
    /// Milliseconds for each figure
    #[arg(long, default_value_t = 300)]
    time_ms: u64,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let mut options = Options {
            packet_bytes: self.packet_bytes.into(),
            time: Duration::from_millis(self.time_ms.max(1)),
            ..Options::default()
        };
        if let Some(bursts) = self.burst {
            options.bursts = bursts.into_iter().map(usize::from).collect();
        }
        if let Some(headers) = self.header_bytes {
            options.headers = headers;
        }
        if self.same_core {
            options.backends = vec![Backend::SameCore];
        }
        let progress = Progress::new(steps(&options));
        let rows = run(&options, |case, backend, burst, header| {
            progress.step(format!(
                "{}, {}, burst {burst}, {header} header bytes",
                case.name(),
                backend.name()
            ));
        })?;
        drop(progress);
        if self.json {
            output::json(&rows)?;
        } else {
            table(&rows);
        }
        Ok(Exit::Done)
    }
}

fn table(rows: &[Row]) {
    output::line(format_args!(
        "{:<12} {:<20} {:>6} {:>7} {:>10} {:>8} {:>8} {:>8} {:>11}",
        "P4 VM on", "traffic", "burst", "header", "submit ns", "poll ns", "both ns", "quiet ns", "Mpackets/s"
    ));
    for r in rows {
        output::line(format_args!(
            "{:<12} {:<20} {:>6} {:>7} {:>10.1} {:>8.1} {:>8.1} {:>8.1} {:>11.2}",
            r.backend.name(),
            r.case.name(),
            r.burst,
            r.header_bytes,
            r.submit_ns,
            r.poll_ns,
            r.submit_ns + r.poll_ns,
            r.quiet_ns,
            r.mpps
        ));
    }
}
