//! Packets a second from one host to the other.

use std::time::Instant;

use anyhow::Context;
use p4shield_testbed::{NetNs, wait_until};

use super::world::{World, generator};
use super::{Forwarder, Options, Throughput};
use crate::fixture::product::TEE;

/// Bytes of the packets that testpmd sends unless told otherwise.
const PACKET_BYTES: u32 = 64;
/// Seconds in which the first packets must arrive.
const PATIENCE: u64 = 30;

/// Counts the packets that leave the left host and arrive at the right one.
pub(super) fn measure(options: &Options, forwarder: Forwarder) -> anyhow::Result<Throughput> {
    let world = World::start(forwarder, &TEE)?;
    let _generator = generator(&world.hosts.left)?;
    wait_until("the first packets", PATIENCE, || {
        packets(&world.hosts.right, "rx").is_ok_and(|arrived| arrived > 1000)
    })?;
    std::thread::sleep(options.time / 4);
    let counts = || anyhow::Ok((packets(&world.hosts.left, "tx")?, packets(&world.hosts.right, "rx")?));
    let (start, before) = (Instant::now(), counts()?);
    std::thread::sleep(options.time);
    // On a busy machine the forwarder may have had no core all the time.
    let mode = crate::name(forwarder);
    wait_until(&format!("a packet that {mode} forwards"), PATIENCE, || {
        packets(&world.hosts.right, "rx").is_ok_and(|arrived| arrived > before.1)
    })?;
    let (after, time) = (counts()?, start.elapsed());
    let (sent, arrived) = (after.0 - before.0, after.1 - before.1);
    Ok(Throughput {
        mode: forwarder,
        bytes: PACKET_BYTES,
        mpps: arrived as f64 / time.as_secs_f64() / 1e6,
        lost_percent: 100.0 * sent.saturating_sub(arrived) as f64 / sent as f64,
        ratio: f64::NAN,
    })
}

/// Returns the packets that a host's interface has received (`rx`) or sent (`tx`).
fn packets(host: &NetNs, direction: &str) -> anyhow::Result<u64> {
    let links: serde_json::Value = serde_json::from_str(&host.ip("-s -j link show eth0")?)?;
    links[0]["stats64"][direction]["packets"].as_u64().context("ip shows no counters of eth0")
}
