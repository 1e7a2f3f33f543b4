//! `p4shield switch batches`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use p4shield_console::{Exit, output, signals};
use p4shield_p4switch::api::{self, BatchesView};
use serde::Serialize;

use super::Socket;
use super::recorded::failed;
use crate::commands::program_state::columns;

/// Pause between two requests. The switch ends the notes after ten seconds without one.
const PAUSE: Duration = Duration::from_millis(100);
/// Seconds of a measurement without a limit.
const SECONDS: u64 = 1;

/// Show how long batches of packets take: to receive, process and send
///
/// A batch is what a packet thread receives at once, at most 32 packets of each port. As long as this
/// command runs, the threads note the times of each batch; otherwise notes cost nothing.
///
/// - receive: the packets come from the ports into the switch's memory
/// - process: the program runs, and packets that leave go into memory of their ports
/// - send: the ports are told of them
///
/// Examples:
///
///   p4shield switch batches                  batches of one second: number and mean times by size
///   p4shield switch batches --for 10
///   p4shield switch batches --count 1000 --json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Batches {
    /// End after so many batches
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds (1 without --count)
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "count")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Print JSON, one line for each batch
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

/// A batch in JSON.
#[derive(Debug, Serialize)]
struct Line {
    /// The packet thread, from 1.
    thread: usize,
    packets: u32,
    receive_ns: u32,
    process_ns: u32,
    send_ns: u32,
}

/// The batches of a size: their number, and the sums of their times in nanoseconds.
type Sums = (u64, [u64; 3]);

/// Batches so far.
#[derive(Debug, Default)]
struct Seen {
    batches: u64,
    missed: u64,
    sizes: BTreeMap<u32, Sums>,
    /// Nanoseconds of all threads: altogether, and in rounds without a packet.
    span: u64,
    empty: u64,
}

impl Batches {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let socket = &self.socket.socket;
        let stop = signals::stop_flag()?;
        api::note_batches(socket).map_err(failed)?;
        output::note("noting batches; Ctrl-C ends it");
        let seconds = self.seconds.or(self.count.is_none().then_some(SECONDS));
        let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
        let mut seen = Seen::default();
        loop {
            // What came before the end is still shown.
            let last = stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
            let taken = self.take(socket, &mut seen);
            let is_enough = self.count.is_some_and(|count| seen.batches >= count);
            if taken.is_err() || last || is_enough {
                let stopped = api::stop_batches(socket).map_err(failed);
                taken.and(stopped)?;
                break;
            }
            std::thread::sleep(PAUSE);
        }
        if !self.json {
            output::text(&text(&seen));
        }
        if seen.missed > 0 {
            output::note(format_args!("{} batches more, for which the switch had no room", seen.missed));
        }
        Ok(Exit::Done)
    }

    /// Takes batches, and prints them if they are wanted as JSON.
    fn take(&self, socket: &Path, seen: &mut Seen) -> anyhow::Result<()> {
        let BatchesView { threads } = api::batches(socket).map_err(failed)?;
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for (thread, of) in (1..).zip(threads) {
            seen.missed += of.missed;
            seen.span += of.span_ns;
            seen.empty += of.empty_ns;
            for [packets, receive_ns, process_ns, send_ns] in of.batches {
                if self.count.is_some_and(|count| seen.batches >= count) {
                    break;
                }
                seen.add(packets, [receive_ns, process_ns, send_ns]);
                if self.json {
                    serde_json::to_writer(
                        &mut out,
                        &Line { thread, packets, receive_ns, process_ns, send_ns },
                    )?;
                    out.write_all(b"\n")?;
                }
            }
        }
        Ok(out.flush()?)
    }
}

impl Seen {
    fn add(&mut self, packets: u32, times: [u32; 3]) {
        self.batches += 1;
        let (count, sums) = self.sizes.entry(packets).or_default();
        *count += 1;
        sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += u64::from(time));
    }
}

fn text(seen: &Seen) -> String {
    if seen.sizes.is_empty() {
        return "no batches\n".to_owned();
    }
    let row = |(packets, (count, sums)): (&u32, &Sums)| {
        let mean = |sum: u64| format!("{:.3}", sum as f64 / *count as f64 / 1e3);
        let times = sums.iter().copied().chain([sums.iter().sum()]).map(mean);
        [packets.to_string(), count.to_string()].into_iter().chain(times).collect()
    };
    let header = ["packets", "batches", "receive µs", "process µs", "send µs", "all µs"];
    let header = header.map(str::to_owned).to_vec();
    let mut out = String::new();
    columns(&mut out, &std::iter::once(header).chain(seen.sizes.iter().map(row)).collect::<Vec<_>>());
    let packets: u64 = seen.sizes.iter().map(|(packets, (count, _))| u64::from(*packets) * count).sum();
    let busy: u64 = seen.sizes.values().flat_map(|(_, sums)| sums).sum();
    let percent = |part: u64| 100.0 * part as f64 / seen.span.max(1) as f64;
    out.push_str(&format!(
        "{} batches, {packets} packets; {:.1} % of the threads' time, {:.1} % in rounds without a packet\n",
        seen.batches,
        percent(busy),
        percent(seen.empty),
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_mean_times_of_each_size() {
        let mut seen = Seen { span: 100_000, empty: 50_000, ..Seen::default() };
        seen.add(32, [1_000, 9_000, 2_000]);
        seen.add(1, [500, 250, 125]);
        seen.add(32, [3_000, 8_000, 2_000]);
        let expected = concat!(
            "  packets  batches  receive µs  process µs  send µs  all µs\n",
            "  1        1        0.500       0.250       0.125    0.875\n",
            "  32       2        2.000       8.500       2.000    12.500\n",
            "3 batches, 65 packets; 25.9 % of the threads' time, 50.0 % in rounds without a packet\n",
        );
        assert_eq!(text(&seen), expected);
        assert_eq!(text(&Seen::default()), "no batches\n");
    }
}
