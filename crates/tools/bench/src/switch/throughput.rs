//! Throughput of packets from memory: `net_pcap` to `net_null`.

use std::time::Instant;

use anyhow::Context;
use p4shield_testbed::{NetNs, wait_until};

use super::lab::Lab;
use super::shield::Shield;
use super::{Mode, Options, SwitchKind, Throughput, traffic};

/// Seconds in which the first packets must arrive.
const PATIENCE: u64 = 30;

/// Starts the switch, warms it up, and counts the packets that leave it.
pub(super) fn measure(options: &Options, mode: Mode, bytes: u32) -> anyhow::Result<Throughput> {
    let host = NetNs::create("bench")?;
    let devices = |file: &str| {
        // Open vSwitch needs a transmit queue per thread, and net_pcap has as many as receive queues.
        let queues = if options.switch == SwitchKind::Ovs { 2 } else { 1 };
        let source = format!(",rx_pcap={file}").repeat(queues);
        [format!("net_pcap0{source},infinite_rx=1"), "net_null1,no-rx=1".to_owned()]
    };
    let ports = options.switch.port_names(&devices(""));
    let shield = Shield::start(options, mode, &ports)?;
    let file = shield.folder().join("traffic.pcap");
    traffic::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    let devices = devices(&file.display().to_string());
    let mut lab = Lab::start(options.switch, &host, &shield.environment(), &devices)?;
    shield.await_switch()?;
    let _tenant = (mode == Mode::Neighbour).then(|| lab.add_tenant(&host, shield.folder())).transpose()?;
    wait_until("the first packets", PATIENCE, || lab.sent().is_ok_and(|n| n > 0))?;
    std::thread::sleep(options.time / 4);
    lab.clear_cycles()?;
    let (start, before) = (Instant::now(), lab.sent()?);
    std::thread::sleep(options.time);
    let (sent, time) = (lab.sent()? - before, start.elapsed());
    let cycles = lab.cycles()?;
    let mpps = sent as f64 / time.as_secs_f64() / 1e6;
    Ok(Throughput { mode, bytes, mpps, ratio: f64::NAN, cycles })
}
