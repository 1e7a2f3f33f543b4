//! Throughput of one TCP connection or UDP flow, measured by `iperf3`.

use std::process::Stdio;

use anyhow::Context;
use p4shield_testbed::{Guarded, process, wait_until};

use super::lab::SERVER;
use super::world::World;
use super::{Options, Stream};
use crate::protocol::Protocol;

const PORT: &str = "5201";

/// Measures both protocols with each message size, client to server.
pub(super) fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Stream>> {
    let mut server = world.server.command("iperf3");
    server.args(["-s", "-p", PORT]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Guarded::spawn(&mut server)?;
    let listens = || {
        let sockets = process::run(world.server.command("ss").args(["-ltn"]));
        sockets.is_ok_and(|s| s.contains(&format!(":{PORT} ")))
    };
    wait_until("start of iperf3", 20, listens)?;
    let mut all = Vec::new();
    for &message in &options.messages {
        for protocol in Protocol::ALL {
            let mbps = run(world, options, protocol, message)?;
            all.push(Stream { mode: world.mode, protocol, message, mbps, ratio: f64::NAN });
        }
    }
    Ok(all)
}

fn run(world: &World, options: &Options, protocol: Protocol, message: u32) -> anyhow::Result<f64> {
    let mut client = world.client.command("iperf3");
    let seconds = options.time.as_secs().max(1).to_string();
    client.args(["-c", &SERVER.to_string(), "-p", PORT, "-J", "-t", &seconds, "-l", &message.to_string()]);
    if protocol == Protocol::Udp {
        client.args(["-u", "-b", "0"]);
    }
    let text = process::run(&mut client)?;
    let what = || format!("iperf3 over {} does not report the received traffic", crate::name(protocol));
    received(&text, protocol).with_context(what)
}

/// Returns the received million bits per second from iperf3's report.
fn received(report: &str, protocol: Protocol) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(report).ok()?;
    let end = &report["end"];
    let bits = match protocol {
        Protocol::Tcp => end["sum_received"]["bits_per_second"].as_f64()?,
        Protocol::Udp => {
            // Sent less lost: iperf3 3.12 reports one sum for both ends.
            let sum = &end["sum"];
            sum["bits_per_second"].as_f64()? * (1.0 - sum["lost_percent"].as_f64()? / 100.0)
        }
    };
    Some(bits / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_traffic_is_read_from_iperf3s_report() {
        let tcp = r#"{"end":{"sum_sent":{"bits_per_second":3e9},"sum_received":{"bits_per_second":2e9}}}"#;
        assert_eq!(received(tcp, Protocol::Tcp), Some(2000.0));
        let udp = r#"{"end":{"sum":{"bits_per_second":1e9,"lost_percent":25.0}}}"#;
        assert_eq!(received(udp, Protocol::Udp), Some(750.0));
        assert_eq!(received("{}", Protocol::Tcp), None);
    }
}
