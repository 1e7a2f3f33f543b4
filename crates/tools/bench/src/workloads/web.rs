//! nginx with one page, under wrk.
//!
//! Each request has a connection of its own, as with the paper's ApacheBench.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use p4shield_testbed::NetNs;

use super::program::{Load, Package, Program, Seen, Site, after, number};
use crate::stats::Percentiles;

/// `nginx` and `wrk`.
pub(super) struct Web;

const PORT: u16 = 8080;
const PAGE: &str = "page.html";
/// Seconds after which wrk counts a request as failed: TCP sends again after one, then two.
const TIMEOUT: &str = "10s";

impl Program for Web {
    fn packages(&self) -> &'static [Package; 2] {
        &[Package { program: "nginx", package: "nginx-light" }, Package { program: "wrk", package: "wrk" }]
    }

    fn unit(&self) -> &'static str {
        "requests/s"
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn server(&self, program: &Path, site: &Site<'_>, load: Load) -> anyhow::Result<Command> {
        let Site { vm, address, folder } = site;
        let cannot = || format!("cannot write nginx's files into {}", folder.display());
        std::fs::write(folder.join(PAGE), vec![b'x'; load.page as usize]).with_context(cannot)?;
        let config = folder.join("nginx.conf");
        std::fs::write(&config, text_of_config(folder, address, load)).with_context(cannot)?;
        let mut command = vm.command(program);
        command.args(["-e", "stderr", "-p"]).arg(folder).arg("-c").arg(config);
        Ok(command)
    }

    fn client(&self, program: &Path, outside: &NetNs, address: &str, load: Load) -> Command {
        let mut command = outside.command(program);
        let (connections, time) = (load.connections.to_string(), format!("{}s", load.seconds));
        command.args(["--threads", "1", "--connections", &connections, "--duration", &time]);
        command.args(["--latency", "--timeout", TIMEOUT, "--header", "Connection: close"]);
        command.arg(format!("http://{address}:{PORT}/{PAGE}"));
        command
    }

    fn read(&self, printed: &str) -> anyhow::Result<Seen> {
        let throughput = number(after(printed, "Requests/sec:")?)?;
        ensure!(throughput > 0.0, "no request was answered; give the programs more --seconds");
        let (_, distribution) =
            printed.split_once("Latency Distribution").context("it has no `Latency Distribution`")?;
        let [p50, p90, p99] = ["50%", "90%", "99%"].map(|label| micros(after(distribution, label)?));
        // wrk prints these lines only if there are any.
        let refused = after(printed, "Non-2xx or 3xx responses:").map_or(Ok(0), number)?;
        let broken = after(printed, "Socket errors:").map_or(Ok(0), broken)?;
        let micros = Some(Percentiles { p50: p50?, p90: p90?, p99: p99? });
        Ok(Seen { throughput, micros, failed: refused + broken })
    }
}

/// Returns a configuration for one process that keeps all its files in `folder`.
fn text_of_config(folder: &Path, address: &str, load: Load) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("  {what}_temp_path {folder}/{what};\n"))
        .concat();
    // A connection that ends and the next one may exist at once.
    let connections = 2 * load.connections + 64;
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections {connections}; }}\n\
         http {{\n  access_log off;\n{temporary}  \
         server {{ listen {address}:{PORT} backlog=4096; root {folder}; }}\n}}\n"
    )
}

/// Reads a time such as `834.00us`, `1.06ms`, `2.50s` or `1.20m`.
fn micros(text: &str) -> anyhow::Result<f64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (value, unit) = text.split_at(unit);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => bail!("`{text}` is no time in us, ms, s, m or h"),
    };
    Ok(number::<f64>(value)? * factor)
}

/// Returns the sum of wrk's socket errors: `connect 0, read 3, write 0, timeout 2`.
fn broken(text: &str) -> anyhow::Result<u64> {
    let one = |part: &str| {
        let (_, count) = part.trim().split_once(' ').with_context(|| format!("`{part}` has no count"))?;
        number::<u64>(count)
    };
    text.split(',').map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of wrk 4.1.0.
    const PRINTED: &str = "Running 1s test @ http://127.0.0.1:18080/index.html
  1 threads and 20 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.06ms    0.86ms   6.77ms   88.97%
    Req/Sec    14.05k     2.13k   16.69k    60.00%
  Latency Distribution
     50%  834.00us
     75%    1.06ms
     90%    1.71ms
     99%    5.18ms
  13981 requests in 1.00s, 153.81MB read
Requests/sec:  13963.24
Transfer/sec:    153.62MB
";

    #[test]
    fn rate_and_percentiles_are_read() {
        let seen = Web.read(PRINTED).unwrap();
        let micros = Percentiles { p50: 834.0, p90: 1710.0, p99: 5180.0 };
        assert_eq!(seen, Seen { throughput: 13_963.24, micros: Some(micros), failed: 0 });
    }

    #[test]
    fn failed_requests_are_counted() {
        let lines = "153.81MB read\n  Socket errors: connect 0, read 7869, write 13212, timeout 1\n  \
                     Non-2xx or 3xx responses: 69798\n";
        let seen = Web.read(&PRINTED.replace("153.81MB read\n", lines)).unwrap();
        assert_eq!(seen.failed, 7869 + 13_212 + 1 + 69_798);
    }

    #[test]
    fn times_have_units() {
        assert_eq!((micros("0.00us").unwrap(), micros("2.50s").unwrap()), (0.0, 2.5e6));
        assert_eq!((micros("1.20m").unwrap(), micros("1.00h").unwrap()), (72e6, 3.6e9));
        assert!(micros("1.20").is_err() && micros("us").is_err() && micros("1d").is_err());
    }

    #[test]
    fn an_output_without_a_figure_says_which() {
        let error = |from: &str, to: &str| format!("{:#}", Web.read(&PRINTED.replace(from, to)).unwrap_err());
        assert!(error("Requests/sec", "x").contains("`Requests/sec:`"));
        assert!(error("  99%", "").contains("`99%`"));
        assert!(error("13963.24", "0.00").contains("no request was answered"));
        assert!(error("5.18ms", "5.18 parsecs").contains("5.18 parsecs"));
        assert!(error("read\n", "read\n  Socket errors: connect many\n").contains("`many` is no number"));
        assert!(format!("{:#}", Web.read("").unwrap_err()).contains("Requests/sec"));
    }
}
