//! Requests and responses while entries are added.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use p4shield_p4switch::api::{self, Answer, Request};
use p4shield_socket::{Client, Patience};

use super::world::{ROUTES, World};
use super::{Forwarder, Latency, Options, Tables};
use crate::fixture::hosts::{LEFT, RIGHT};
use crate::protocol::Protocol;
use crate::stats::Percentiles;
use crate::trips::Endpoints;
use crate::world::await_ping;

/// Bytes of request and response.
const MESSAGE: u32 = 64;
/// The limits of an answer.
const PATIENCE: Patience = Patience { time: Duration::from_secs(30), bytes: 1 << 16 };
/// Entries of a file, which the switch takes at once.
const FILE: u32 = 100;
/// Entries that the table has room for, but those that the hosts need.
const ROOM: u32 = 131_000;

/// Measures all three, on one switch.
pub(super) fn measure(options: &Options) -> anyhow::Result<[Latency; 3]> {
    let world = World::start(Forwarder::P4shield, &ROUTES)?;
    await_ping(&world.hosts.left, RIGHT)?;
    let idle = trips(&world, options, Tables::Idle)?;
    let elsewhere = {
        let other = World::start(Forwarder::P4shield, &ROUTES)?;
        while_adding(options, &other.socket()?, || trips(&world, options, Tables::Elsewhere))?
    };
    let written = while_adding(options, &world.socket()?, || trips(&world, options, Tables::Written))?;
    Ok([idle, elsewhere, written])
}

/// Measures while entries are added to a switch.
fn while_adding(
    options: &Options,
    socket: &Path,
    measure: impl FnOnce() -> anyhow::Result<Latency>,
) -> anyhow::Result<Latency> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| add(socket, options.entries, &stop));
        let latency = measure();
        stop.store(true, Relaxed);
        let rate = writer.join().unwrap_or_else(|_| Err(anyhow!("the writing thread panicked")));
        Ok(Latency { entries_s: rate?, ..latency? })
    })
}

fn trips(world: &World, options: &Options, mode: Tables) -> anyhow::Result<Latency> {
    let socket = world.socket()?;
    let hosts =
        Endpoints { client: (&world.hosts.left, LEFT), server: (&world.hosts.right, RIGHT), core: None };
    let count = options.round_trips as usize;
    let before = dropped(&socket)?;
    let mut times = hosts.trips(Protocol::Udp, count, MESSAGE as usize)?;
    let (lost, dropped) = ((count - times.len()) as u64, dropped(&socket)? - before);
    let micros = Percentiles::of(&mut times);
    Ok(Latency { mode, message: MESSAGE, entries_s: 0.0, micros, lost, dropped, ratio: f64::NAN })
}

fn dropped(socket: &Path) -> Result<u64, api::ApiError> {
    Ok(api::status(socket)?.dropped.iter().map(|d| d.packets).sum())
}

/// Adds this many entries each second until `stop` is set or the table is full. Returns how many a second.
fn add(socket: &Path, each_second: u32, stop: &AtomicBool) -> anyhow::Result<f64> {
    let pause = Duration::from_secs(1) * FILE / each_second;
    // A controller stays connected.
    let mut client = Client::connect(socket)?;
    let (start, mut added) = (Instant::now(), 0);
    // The first file in any case: this thread may get a core only at the end.
    while added == 0 || (!stop.load(Relaxed) && added + FILE <= ROOM) {
        let load = Request::Load { format: ROUTES.format(), text: file(added), replace: false };
        match client.ask(&load, PATIENCE)? {
            Answer::Loaded { .. } => {}
            other => bail!("the switch refuses entries: {other:?}"),
        }
        added += FILE;
        let due = pause * (added / FILE);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(f64::from(added) / start.elapsed().as_secs_f64())
}

/// Returns a file with different prefixes that no packet matches, the first of this number.
fn file(first: u32) -> String {
    let mut text = "hdr.ipv4.destination,action,port\n".to_owned();
    for n in first..first + FILE {
        let [_, a, b, c] = n.to_be_bytes();
        // Writing to a string does not fail.
        let _ = writeln!(text, "172.{}.{b}.{c}/32,forward,1", 16 + a);
    }
    text
}
