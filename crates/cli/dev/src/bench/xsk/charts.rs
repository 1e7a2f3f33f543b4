//! The paper's figures of what `p4shield-dev bench xsk` measured.

use p4shield_bench::switch::Protocol;
use p4shield_bench::xsk::{Mode, Report, delay, hysteresis, messages};
use p4shield_plot::{Lines, Series};

/// File names and charts of everything there is in the report.
pub(super) fn all(report: &Report) -> Vec<(&'static str, Lines)> {
    let mut charts = Vec::new();
    if let Some(t) = &report.hysteresis {
        charts.extend(timeline(t));
    }
    if let Some(m) = &report.messages {
        charts.extend(by_message(m));
    }
    if let Some(d) = &report.delay {
        charts.extend(by_delay(d));
    }
    charts.retain(|(_, c)| c.series.iter().any(|s| !s.points.is_empty()));
    charts
}

fn chart(title: &str, x: &str, y: &str, series: Vec<Series>, log_x: bool) -> Lines {
    Lines { title: title.into(), x: x.into(), y: y.into(), series, bands: Vec::new(), log_x }
}

fn series(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.into(), points }
}

fn timeline(t: &hysteresis::Timeline) -> [(&'static str, Lines); 2] {
    let used = t.samples.iter().filter_map(|s| Some((s.at, s.utilisation?))).collect();
    let ends = [t.samples.first().map_or(0.0, |s| s.at), t.samples.last().map_or(0.0, |s| s.at)];
    let level = |percent: f64| ends.map(|at| (at, percent)).to_vec();
    let [high, low] = t.thresholds;
    let network = vec![
        series("in use", used),
        series("shed above", level(high)),
        series("let through below", level(low)),
    ];
    let arrived = |n: usize| t.samples.iter().map(|s| (s.at, s.mbps[n])).collect();
    let ports = vec![series("port 8000, kept", arrived(0)), series("port 9000, load", arrived(1))];
    [
        (
            "xsk-hysteresis-network.svg",
            chart("The user VM's link", "seconds", "percent in use", network, false),
        ),
        (
            "xsk-hysteresis-ports.svg",
            chart("What arrives in the user VM", "seconds", "million bits/s", ports, false),
        ),
    ]
}

fn by_message(m: &messages::Report) -> [(&'static str, Lines); 4] {
    let latency = |protocol| {
        let of = |mode: Mode| {
            let all = m.latency.iter().filter(move |l| l.mode == mode && l.protocol == protocol);
            series(mode.name(), all.map(|l| (f64::from(l.message), l.micros.p50)).collect())
        };
        Mode::ALL.map(of).into()
    };
    let throughput = |protocol| {
        let of = |mode: Mode| {
            let all = m.throughput.iter().filter(move |t| t.mode == mode && t.protocol == protocol);
            series(mode.name(), all.map(|t| (f64::from(t.message), t.mbps.median)).collect())
        };
        Mode::ALL.map(of).into()
    };
    let (x, us, mbps) = ("bytes of a message", "microseconds", "million bits/s");
    [
        (
            "xsk-latency-udp.svg",
            chart("UDP request and response, median", x, us, latency(Protocol::Udp), true),
        ),
        (
            "xsk-latency-tcp.svg",
            chart("TCP request and response, median", x, us, latency(Protocol::Tcp), true),
        ),
        ("xsk-throughput-udp.svg", chart("One UDP flow", x, mbps, throughput(Protocol::Udp), true)),
        ("xsk-throughput-tcp.svg", chart("One TCP connection", x, mbps, throughput(Protocol::Tcp), true)),
    ]
}

fn by_delay(d: &delay::Report) -> [(&'static str, Lines); 3] {
    let latency = |protocol: Protocol| {
        let all = d.latency.iter().filter(move |l| l.protocol == protocol);
        series(protocol.name(), all.filter_map(|l| Some((l.delay_us?, l.micros.p50))).collect())
    };
    let throughput = |protocol| {
        let all: Vec<_> = d.throughput.iter().filter(|t| t.protocol == protocol).collect();
        let mut sizes: Vec<u32> = all.iter().map(|t| t.message).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let of = |size: u32| {
            let some = all.iter().filter(|t| t.message == size);
            series(format!("{size} bytes"), some.filter_map(|t| Some((t.delay_us?, t.mbps.median))).collect())
        };
        sizes.into_iter().map(of).collect()
    };
    let (x, mbps) = ("microseconds that the P4 VM takes longer for a packet", "million bits/s");
    let trips = [Protocol::Udp, Protocol::Tcp].map(latency).into();
    [
        ("xsk-delay-latency.svg", chart("Request and response, median", x, "microseconds", trips, false)),
        ("xsk-delay-udp.svg", chart("One UDP flow", x, mbps, throughput(Protocol::Udp), false)),
        ("xsk-delay-tcp.svg", chart("One TCP connection", x, mbps, throughput(Protocol::Tcp), false)),
    ]
}
