//! iperf3: one TCP stream from outside to each tenant's VM.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use p4shield_testbed::NetNs;
use serde_json::Value;

use super::program::{Load, Package, Program, Seen, Site};

/// `iperf3`.
pub(super) struct Iperf3;

const PORT: u16 = 5201;

impl Program for Iperf3 {
    fn packages(&self) -> &'static [Package; 2] {
        const IPERF3: Package = Package { program: "iperf3", package: "iperf3" };
        &[IPERF3, IPERF3]
    }

    fn unit(&self) -> &'static str {
        "Mbit/s"
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn server(&self, program: &Path, site: &Site<'_>, _: Load) -> anyhow::Result<Command> {
        let mut command = site.vm.command(program);
        command.args(["--server", "--port", &PORT.to_string(), "--bind", site.address]);
        Ok(command)
    }

    fn client(&self, program: &Path, outside: &NetNs, address: &str, load: Load) -> Command {
        let mut command = outside.command(program);
        command.args(["--client", address, "--port", &PORT.to_string(), "--json"]);
        command.args(["--time", &load.seconds.to_string()]);
        command
    }

    fn read(&self, printed: &str) -> anyhow::Result<Seen> {
        let report: Value = serde_json::from_str(printed).context("it is no JSON")?;
        if let Some(error) = report["error"].as_str() {
            bail!("it reports an error: {error}");
        }
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        let bits = bits.context("it has no number at end.sum_received.bits_per_second")?;
        Ok(Seen { throughput: bits / 1e6, micros: None, failed: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bits_are_read_from_a_report() {
        // Of iperf3 3.12, shortened.
        let printed = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
            "sum_sent": {"start": 0, "end": 1.000528, "bytes": 1935933440,
                "bits_per_second": 15479294452.529064, "retransmits": 0, "sender": true},
            "sum_received": {"start": 0, "end": 1.002829, "bytes": 1935933440,
                "bits_per_second": 15443777074.6558, "sender": true},
            "sender_tcp_congestion": "bbr", "receiver_tcp_congestion": "bbr"}}"#;
        let seen = Iperf3.read(printed).unwrap();
        assert!((seen.throughput - 15_443.777).abs() < 0.001 && seen.micros.is_none(), "{seen:?}");
    }

    #[test]
    fn a_report_without_the_figure_says_which() {
        let error = |printed: &str| format!("{:#}", Iperf3.read(printed).unwrap_err());
        // Of iperf3 3.12.
        let refused = r#"{"start": {"connected": [], "version": "iperf 3.12"}, "intervals": [], "end": {},
            "error": "unable to connect to server: Connection refused"}"#;
        assert!(error(refused).contains("Connection refused"));
        assert!(error(r#"{"end": {}}"#).contains("end.sum_received.bits_per_second"));
        assert!(error("iperf3: error").contains("no JSON"));
    }
}
