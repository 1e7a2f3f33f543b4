//! Charts of what `p4shield-dev bench xsk` measured.

use p4shield_bench::name;
use p4shield_bench::switch::Protocol;
use p4shield_bench::xsk::{Report, delay, hysteresis, messages};
use p4shield_plot::{Lines, Series};

use super::super::{Chart, series};

/// Charts of everything there is in the report.
pub(super) fn all(report: &Report) -> Vec<Chart> {
    let mut charts = Vec::new();
    charts.extend(report.hysteresis.iter().flat_map(timeline));
    charts.extend(report.messages.iter().flat_map(by_message));
    charts.extend(report.delay.iter().flat_map(by_delay));
    charts.retain(|(_, c)| c.series.iter().any(|s| !s.points.is_empty()));
    charts.into_iter().map(|(name, chart)| (name, chart.svg())).collect()
}

fn chart(title: &str, [x, y]: [&str; 2], series: Vec<Series>, log_x: bool) -> Lines {
    Lines { title: title.into(), x: x.into(), y: y.into(), series, log_x, ..Lines::default() }
}

fn timeline(t: &hysteresis::Timeline) -> [(&'static str, Lines); 2] {
    let line = |name: &str, value: &dyn Fn(&hysteresis::Sample) -> Option<f64>| {
        series(&t.samples, |_| name.to_owned(), |s| Some((s.at, value(s)?)))
    };
    let [high, low] = t.thresholds;
    let network = [
        line("in use", &|s| s.utilisation),
        line("shed above", &|_| Some(high)),
        line("let through below", &|_| Some(low)),
    ];
    let ports =
        [line("port 8000, kept", &|s| Some(s.mbps[0])), line("port 9000, load", &|s| Some(s.mbps[1]))];
    let (used, mbps) = (["seconds", "percent in use"], ["seconds", "million bits/s"]);
    [
        ("xsk-hysteresis-network.svg", chart("The user VM's link", used, network.concat(), false)),
        ("xsk-hysteresis-ports.svg", chart("What arrives in the user VM", mbps, ports.concat(), false)),
    ]
}

fn by_message(m: &messages::Report) -> [(&'static str, Lines); 4] {
    let latency = |protocol: Protocol| {
        let some = m.latency.iter().filter(move |l| l.protocol == protocol);
        series(some, |l| name(l.mode), |l| Some((f64::from(l.message), l.micros.p50)))
    };
    let throughput = |protocol: Protocol| {
        let some = m.throughput.iter().filter(move |t| t.protocol == protocol);
        series(some, |t| name(t.mode), |t| Some((f64::from(t.message), t.mbps.median)))
    };
    let (us, mbps) = (["bytes of a message", "microseconds"], ["bytes of a message", "million bits/s"]);
    [
        ("xsk-latency-udp.svg", "UDP request and response, median", us, latency(Protocol::Udp)),
        ("xsk-latency-tcp.svg", "TCP request and response, median", us, latency(Protocol::Tcp)),
        ("xsk-throughput-udp.svg", "One UDP flow", mbps, throughput(Protocol::Udp)),
        ("xsk-throughput-tcp.svg", "One TCP connection", mbps, throughput(Protocol::Tcp)),
    ]
    .map(|(file, title, axes, series)| (file, chart(title, axes, series, true)))
}

fn by_delay(d: &delay::Report) -> [(&'static str, Lines); 3] {
    let trips = series(&d.latency, |l| name(l.protocol), |l| Some((l.delay_us?, l.micros.p50)));
    let throughput = |protocol: Protocol| {
        let some = d.throughput.iter().filter(move |t| t.protocol == protocol);
        series(some, |t| format!("{} bytes", t.message), |t| Some((t.delay_us?, t.mbps.median)))
    };
    let x = "microseconds that the P4 VM takes longer for a packet";
    let (us, mbps) = ([x, "microseconds"], [x, "million bits/s"]);
    [
        ("xsk-delay-latency.svg", chart("Request and response, median", us, trips, false)),
        ("xsk-delay-udp.svg", chart("One UDP flow", mbps, throughput(Protocol::Udp), false)),
        ("xsk-delay-tcp.svg", chart("One TCP connection", mbps, throughput(Protocol::Tcp), false)),
    ]
}
