//! Third parties' clients: iperf3 and ping, and the processes that keep the machine busy.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use p4shield_testbed::{Guarded, process, wait_until};
use serde_json::Value;

use super::world::{CLIENT, SERVER, World};

/// The port on which the client receives the neighbour's flood.
const FLOOD_PORT: &str = "5202";
/// Bytes of a flood's datagram: 64 bytes of a frame.
const FLOOD_BYTES: &str = "18";
/// Seconds until a server accepts connections on a loaded machine.
const PATIENCE: u64 = 30;

/// One TCP stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    pub(super) mbps: f64,
    pub(super) retransmits_per_gb: f64,
}

/// The servers of iperf3.
pub(super) struct Servers {
    _servers: [Guarded; 2],
}

impl Servers {
    /// Starts them: one in the user VM, one behind the uplink.
    pub(super) fn start(world: &World) -> anyhow::Result<Self> {
        let server = |ns: &p4shield_testbed::NetNs, port: &str| {
            let mut command = ns.command("iperf3");
            command.args(["-s", "-p", port]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let server = Guarded::spawn(&mut command)?;
            let listens = || {
                let sockets = process::run(ns.command("ss").args(["-ltnH", "sport", "=", port]));
                sockets.is_ok_and(|sockets| !sockets.is_empty())
            };
            wait_until("a server of iperf3", PATIENCE, listens)?;
            anyhow::Ok(server)
        };
        Ok(Self { _servers: [server(&world.server, "5201")?, server(&world.client, FLOOD_PORT)?] })
    }

    /// Measures one TCP stream to the user VM.
    pub(super) fn tcp(&self, world: &World, time: Duration) -> anyhow::Result<Stream> {
        let end = iperf(world, time, &[])?;
        let number = |part: &str, field: &str| end[part][field].as_f64().unwrap_or_default();
        Ok(Stream {
            mbps: number("sum_received", "bits_per_second") / 1e6,
            retransmits_per_gb: number("sum_sent", "retransmits") / (number("sum_sent", "bytes") / 1e9),
        })
    }

    /// Measures one UDP flow to the user VM: million bits per second that arrive.
    pub(super) fn udp(&self, world: &World, time: Duration) -> anyhow::Result<f64> {
        let end = iperf(world, time, &["-u", "-b", "0", "-l", "1400"])?;
        let number = |field: &str| end["sum"][field].as_f64().unwrap_or_default();
        Ok(number("bits_per_second") / 1e6 * (1.0 - number("lost_percent") / 100.0))
    }
}

/// Runs a client of iperf3 and returns the part `end` of its report.
fn iperf(world: &World, time: Duration, words: &[&str]) -> anyhow::Result<Value> {
    let mut command = world.client.command("iperf3");
    command.args(["-J", "-t", &time.as_secs().to_string(), "-c", &SERVER.to_string()]).args(words);
    let report = process::run(&mut command)?;
    let report: Value =
        serde_json::from_str(&report).with_context(|| format!("iperf3 printed no JSON: {report}"))?;
    Ok(report["end"].clone())
}

/// The neighbour's flood of small datagrams to the client.
pub(super) struct Flood(Guarded);

impl Flood {
    pub(super) fn start(world: &World) -> anyhow::Result<Self> {
        let mut command = world.neighbour.command("iperf3");
        command.args(["-u", "-b", "0", "-t", "600", "-l", FLOOD_BYTES, "-p", FLOOD_PORT]);
        command.args(["-c", &CLIENT.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let flood = Guarded::spawn(&mut command)?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(Self(flood))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The result of `ping` to the user VM.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ping {
    pub(super) lost: u32,
    pub(super) average_ms: f64,
}

impl Ping {
    /// Sends `count` pings, 50 a second.
    pub(super) fn measure(world: &World, count: u32) -> anyhow::Result<Self> {
        let mut ping = world.client.command("ping");
        ping.args(["-q", "-i", "0.02", "-W", "2", "-c", &count.to_string(), &SERVER.to_string()]);
        // The exit status is 1 if no reply came, which is a result.
        let out = ping.stdin(Stdio::null()).output().context("ping does not start")?;
        let text = String::from_utf8_lossy(&out.stdout);
        Self::parse(&text).with_context(|| format!("ping printed no summary: {text}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let summary = text.lines().find(|line| line.contains("packets transmitted"))?;
        let mut numbers = summary.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
        let (sent, received) = (numbers.next()?, numbers.next()?);
        let times = text.lines().find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "));
        let average = times.and_then(|times| times.split('/').nth(1)?.parse().ok());
        Some(Self { lost: sent.saturating_sub(received), average_ms: average.unwrap_or(f64::NAN) })
    }
}

/// Processes that use all the time that they get.
pub(super) struct BusyLoops {
    _loops: Vec<Guarded>,
}

impl BusyLoops {
    pub(super) fn start(count: u16) -> anyhow::Result<Self> {
        let start = |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            Ok(Guarded::spawn(&mut command)?)
        };
        Ok(Self { _loops: (0..count).map(start).collect::<anyhow::Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_summary_is_parsed() {
        let text = "PING 10.9.5.2 (10.9.5.2) 56(84) bytes of data.\n\n--- 10.9.5.2 ping statistics ---\n\
                    100 packets transmitted, 97 received, 3% packet loss, time 2012ms\n\
                    rtt min/avg/max/mdev = 0.045/0.125/1.500/0.100 ms\n";
        let ping = Ping::parse(text).unwrap();
        assert_eq!((ping.lost, ping.average_ms), (3, 0.125));
        let none = "1 packets transmitted, 0 received, 100% packet loss, time 0ms\n";
        assert!(Ping::parse(none).is_some_and(|ping| ping.lost == 1 && ping.average_ms.is_nan()));
        assert!(Ping::parse("").is_none());
    }
}
