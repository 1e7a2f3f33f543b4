//! memcached under memcaslap, Debian 12's name of the paper's memslap.
//!
//! Its default load: a `set` for nine `get`s, keys of 64 and values of 1024 bytes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use p4shield_testbed::NetNs;

use super::program::{Load, Package, Program, Seen, Site, after, number};
use crate::stats::Percentiles;

/// `memcached` and `memcaslap`.
pub(super) struct Memcached;

const PORT: u16 = 11_211;
/// Items that each connection of memcaslap works with. It sets new ones instead of old ones all the time.
const ITEMS: &str = "1k";
/// Million bytes of memcached: its own, and thrice the items of a connection. Else it gives up items that
/// memcaslap still asks for, and these requests fail.
const MEMORY: [u16; 2] = [128, 3];
/// Seconds between statistics of a part of the time, so that only those of the whole time come.
const NEVER: &str = "100000s";

impl Program for Memcached {
    fn packages(&self) -> &'static [Package; 2] {
        &[
            Package { program: "memcached", package: "memcached" },
            Package { program: "memcaslap", package: "libmemcached-tools" },
        ]
    }

    fn unit(&self) -> &'static str {
        "operations/s"
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn server(&self, program: &Path, site: &Site<'_>, load: Load) -> anyhow::Result<Command> {
        let mut command = site.vm.command(program);
        let memory = MEMORY[0] + MEMORY[1] * load.connections;
        // One thread: the VMs have one core.
        command.args(["-u", "nobody", "-l", site.address, "-p", &PORT.to_string(), "-U", "0", "-t", "1"]);
        command.args(["-c", "4096", "-m", &memory.to_string()]);
        Ok(command)
    }

    fn client(&self, program: &Path, outside: &NetNs, address: &str, load: Load) -> Command {
        let mut command = outside.command(program);
        command.args(["-s", &format!("{address}:{PORT}"), "-T", "1", "-S", NEVER, "-w", ITEMS]);
        command.args(["-c", &load.connections.to_string(), "-t", &format!("{}s", load.seconds)]);
        command
    }

    fn read(&self, printed: &str) -> anyhow::Result<Seen> {
        let last = after(printed, "Run time:")?;
        let mut words = last.split_whitespace().skip_while(|word| *word != "TPS:").skip(1);
        let throughput = number(words.next().with_context(|| format!("`{last}` has no `TPS:`"))?)?;
        let (_, total) =
            printed.split_once("Total Statistics (").context("it has no `Total Statistics (`")?;
        let counts = counts(total)?;
        let most = number(after(total, "Max:")?)?;
        let failed = number(after(printed, "get_misses:")?)?;
        Ok(Seen { throughput, micros: Some(percentiles(&counts, most)), failed })
    }
}

/// Reads the distribution: how many responses took how many microseconds, by the number of their binary
/// digits.
fn counts(total: &str) -> anyhow::Result<[u64; 64]> {
    let (_, lines) = total.split_once("Log2 Dist:").context("it has no `Log2 Dist:`")?;
    let mut counts = [0; 64];
    for line in lines.lines().skip(1).take_while(|line| !line.trim().is_empty()) {
        let (first, values) = line.split_once(':').with_context(|| format!("`{line}` has no colon"))?;
        let first: usize = number(first.trim())?;
        for (value, digits) in values.split_whitespace().zip(first..) {
            *counts.get_mut(digits).with_context(|| format!("`{line}` is too far right"))? = number(value)?;
        }
    }
    let some = counts.iter().any(|count| *count > 0);
    ensure!(some, "`Log2 Dist:` has no counts: no request was answered; give the programs more --seconds");
    Ok(counts)
}

/// Returns percentiles of a distribution by binary digits, whose largest value is known. Within a number of
/// digits the values are taken as evenly spread: a percentile is wrong by at most a factor of two.
fn percentiles(counts: &[u64; 64], most: f64) -> Percentiles {
    let all: u64 = counts.iter().sum();
    let at = |share: f64| {
        let (rank, mut below) = (all as f64 * share, 0.0);
        for (count, digits) in counts.iter().zip(0_i32..) {
            let count = *count as f64;
            if count > 0.0 && below + count >= rank {
                let [low, high] = [digits - 1, digits].map(|n| if n < 0 { 0.0 } else { 2_f64.powi(n) });
                return (low + (high - low) * (rank - below) / count).min(most);
            }
            below += count;
        }
        most
    };
    Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of memcaslap of libmemcached-tools 1.1.4.
    const PRINTED: &str = "servers: 127.0.0.1:21211
threads count: 1
concurrency: 16
run time: 1s
windows size: 10k
set proportion: set_prop=0.10
get proportion: get_prop=0.90
Get Statistics (87070 events)
   Min:        21
   Max:      8010
   Avg:       165
   Geo:    152.20
   Std:    162.90
   Log2 Dist:
       4:        0       12     1412    22994
       8:    60012     2329      155       76
      12:       17       63

Set Statistics (9681 events)
   Min:        32
   Max:      4300
   Avg:       162
   Geo:    151.90
   Std:     96.03
   Log2 Dist:
       4:        0        2      138     2627
       8:     6630      247       23        9
      12:        4        1

Total Statistics (96751 events)
   Min:        21
   Max:      8010
   Avg:       165
   Geo:    152.17
   Std:    157.18
   Log2 Dist:
       4:        0       14     1550    25621
       8:    66642     2576      178       85
      12:       21       64

cmd_get: 87081
cmd_set: 9686
get_misses: 0
written_bytes: 16792405
read_bytes: 96725148
object_bytes: 10538368

Run time: 1.0s Ops: 96767 TPS: 96757 Net_rate: 108.2M/s
";

    #[test]
    fn rate_and_percentiles_are_read() {
        let seen = Memcached.read(PRINTED).unwrap();
        let micros = seen.micros.unwrap();
        assert_eq!((seen.throughput, seen.failed), (96_757.0, 0));
        // Of 96,751 responses, the 48,376th is the 21,190th of 66,642 from 128 to 255 µs; the 95,783rd is the
        // 1,956th of 2,576 from 256 to 511 µs.
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.5;
        assert!(near(micros.p50, 168.7) && near(micros.p99, 450.4), "{micros:?}");
        assert!(micros.p90 > 128.0 && micros.p90 < 256.0, "{micros:?}");
    }

    #[test]
    fn a_percentile_is_never_beyond_the_largest_value() {
        let mut counts = [0; 64];
        counts[8] = 10;
        let found = percentiles(&counts, 140.0);
        assert_eq!((found.p50, found.p99), (140.0, 140.0));
        counts = [0; 64];
        counts[0] = 1;
        assert_eq!(percentiles(&counts, 0.0).p99, 0.0);
    }

    #[test]
    fn an_output_without_a_figure_says_which() {
        let error =
            |from: &str, to: &str| format!("{:#}", Memcached.read(&PRINTED.replace(from, to)).unwrap_err());
        assert!(error("TPS:", "x").contains("has no `TPS:`"));
        assert!(error("Total Statistics", "x").contains("Total Statistics"));
        assert!(error("Log2 Dist:", "x").contains("Log2 Dist:"));
        assert!(error("66642", "many").contains("`many` is no number"));
        assert!(error("get_misses", "x").contains("`get_misses:`"));
        assert!(error("      12:", "      99:").contains("too far right"));
        assert!(error("8010", "").contains("`` is no number"));
        assert!(format!("{:#}", Memcached.read("").unwrap_err()).contains("`Run time:`"));
    }
}
