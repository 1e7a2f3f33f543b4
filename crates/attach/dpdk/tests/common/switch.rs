//! testpmd between capture files, with the library in it.

use super::daemon::Cloud;
use p4shield_testbed::dpdk::{Testpmd, TestpmdSetup};
use p4shield_testbed::{NetNs, wait_until};

/// Seconds that a test waits for packets.
pub(crate) const PATIENCE: u64 = 60;

/// testpmd with the library.
pub(crate) fn testpmd(cloud: &Cloud) -> TestpmdSetup {
    let setup = Testpmd::setup().argument("--no-flush-rx").argument("--disable-link-check");
    let setup = setup.argument("--total-num-mbufs=32768");
    cloud.environment().into_iter().fold(setup, |setup, (name, value)| setup.env(name, value))
}

/// A namespace for it; it has no interfaces.
pub(crate) fn nowhere() -> NetNs {
    NetNs::create("dpdk").expect("a namespace")
}

/// Free buffers of testpmd's pool.
pub(crate) fn free_buffers(testpmd: &mut Testpmd) -> u64 {
    buffers(&testpmd.command("dump_mempool mb_pool_0").expect("testpmd answers"))
}

/// Free buffers by DPDK's description of a pool.
pub(crate) fn buffers(text: &str) -> u64 {
    let value = |name: &str| {
        let line = text.lines().find(|l| l.trim_start().starts_with(name));
        line.and_then(|l| l.rsplit('=').next()?.trim().parse::<u64>().ok())
    };
    value("total_cache_count").expect("a count") + value("common_pool_count").expect("a count")
}

/// Waits until a port has sent so many packets.
pub(crate) fn wait_sent(testpmd: &mut Testpmd, port: u16, packets: u64) {
    let mut last = 0;
    wait_until("packets on their way out", PATIENCE, || {
        last = testpmd.stats(port).expect("testpmd answers").tx_packets;
        last >= packets
    })
    .unwrap_or_else(|e| panic!("{e}: {last} of {packets}\n{}", testpmd.transcript()));
}

/// What the library said last of a queue's packets: received, returned, freed, refused, held.
pub(crate) fn last_tally(transcript: &str, port: &str, queue: usize) -> [u64; 5] {
    let mark = format!("event=\"port_queue_stopped\" port=\"{port}\" queue={queue} ");
    let line = transcript.lines().rev().find(|l| l.contains(&mark));
    let line = line.unwrap_or_else(|| panic!("nothing was said of {port}:\n{transcript}"));
    ["received=", "returned=", "freed=", "refused=", "held="].map(|name| {
        let word = line.split_whitespace().find_map(|w| w.strip_prefix(name));
        word.and_then(|w| w.parse().ok()).expect("a number")
    })
}
