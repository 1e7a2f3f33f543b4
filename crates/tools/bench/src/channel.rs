//! `p4shield-dev bench channel`: round trip and throughput between a mediator's and a P4 VM's end, each on
//! its own core.
//!
//! The P4 VM's end does everything except running a program: it copies each request and header into private
//! memory and answers `pass`. Both ends spin, so the figures are those of the channel alone, without sleeping
//! and waking.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use p4shield_abi::Direction;
use p4shield_abi::channel::{BATCH, Geometry, Request};
use p4shield_channel::{RequestBatch, Requester, Responder, Response, SharedMemory, create_channel};
use serde::Serialize;

use crate::args::milliseconds;
use crate::cores;
use crate::stats::Percentiles;

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Requests published together
    #[arg(long = "batch", value_delimiter = ',', default_values_t = [1, 4, 8, 16, BATCH as u8])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=BATCH as i64))]
    pub batches: Vec<u8>,
    /// Header bytes copied per packet
    #[arg(long = "header-bytes", value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1514])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=9728))]
    pub headers: Vec<u32>,
    /// Milliseconds for each throughput
    #[arg(long = "time-ms", value_name = "MS", value_parser = milliseconds, default_value = "500")]
    pub time: Duration,
    /// Number of timed round trips.
    #[arg(skip = 200_000_usize)]
    pub round_trips: usize,
}

/// One pair of batch size and header size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Requests published together.
    pub batch: usize,
    /// Header bytes copied per packet.
    pub header_bytes: u32,
    /// Time from publishing a batch to taking its last answer, nanoseconds; no other batch in flight.
    pub round_trip_ns: Percentiles,
    /// Judged packets per second, millions; with full rings.
    pub mpps: f64,
}

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    options.batches.len() * options.headers.len()
}

/// Measures each batch size with each header size; calls `progress` before each.
///
/// # Errors
/// Shared memory cannot be allocated.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &header_bytes in &options.headers {
        for &batch in &options.batches {
            progress(format!("batch {batch}, {header_bytes} header bytes"));
            rows.push(measure(options, batch.into(), header_bytes)?);
        }
    }
    Ok(rows)
}

fn measure(options: &Options, batch: usize, header_bytes: u32) -> anyhow::Result<Row> {
    let geometry = Geometry { header_bytes, ..Geometry::default() };
    let memory = create_channel("p4shield-bench", geometry)?;
    let fd =
        memory.fd().and_then(|fd| fd.try_clone_to_owned().ok()).context("the channel has no descriptor")?;
    let far = SharedMemory::from_fd(fd, geometry.size())?;
    let mut near = Requester::new(memory, geometry)?;
    let mut judge = Responder::new(far, geometry)?;
    let stop = AtomicBool::new(false);
    let [mine, other] = cores::two();
    let header = vec![0xa5; header_bytes as usize];
    Ok(std::thread::scope(|s| {
        s.spawn(|| {
            cores::pin(other);
            judge_all(&mut judge, &geometry, &stop);
        });
        let row = s
            .spawn(|| {
                cores::pin(mine);
                Row {
                    batch,
                    header_bytes,
                    round_trip_ns: round_trips(&mut near, &header, batch, options.round_trips),
                    mpps: throughput(&mut near, &header, batch, options.time),
                }
            })
            .join();
        stop.store(true, Ordering::Relaxed);
        row.unwrap_or_else(|e| std::panic::resume_unwind(e))
    }))
}

fn judge_all(judge: &mut Responder, geometry: &Geometry, stop: &AtomicBool) {
    let mut batch = RequestBatch::new(geometry);
    while !stop.load(Ordering::Relaxed) {
        let Ok(count) = judge.fetch(&mut batch) else { return };
        for _ in 0..count {
            let _ = judge.respond(Response::Pass);
        }
        let _sleeps = judge.publish();
        if count == 0 {
            std::hint::spin_loop();
        }
    }
}

fn request(id: u64, len: usize) -> Request {
    Request { id, packet_len: len as u32, direction: Direction::Ingress as u8, ..Request::default() }
}

fn round_trips(near: &mut Requester, header: &[u8], batch: usize, count: usize) -> Percentiles {
    let rounds = (count / batch).max(100);
    let mut samples = Vec::with_capacity(rounds);
    for round in 0..rounds + rounds / 10 {
        let start = Instant::now();
        for i in 0..batch {
            let _ = near.push(&request(i as u64, header.len()), header);
        }
        let _sleeps = near.publish();
        let mut taken = 0;
        while taken < batch {
            match near.take(batch, |_| ()) {
                Ok(n) => taken += n,
                Err(_) => return Percentiles::of(&mut samples),
            }
        }
        // The first tenth is warm-up.
        if round >= rounds / 10 {
            samples.push(start.elapsed().as_nanos() as f64);
        }
    }
    Percentiles::of(&mut samples)
}

fn throughput(near: &mut Requester, header: &[u8], batch: usize, time: Duration) -> f64 {
    let start = Instant::now();
    let (mut sent, mut taken) = (0_u64, 0_u64);
    while start.elapsed() < time {
        // Reading the clock rarely keeps its cost out of the figure.
        for _ in 0..256 {
            if near.room() >= batch {
                for _ in 0..batch {
                    let _ = near.push(&request(sent, header.len()), header);
                    sent += 1;
                }
                let _sleeps = near.publish();
            }
            taken += near.take(batch, |_| ()).unwrap_or(0) as u64;
        }
    }
    let rate = taken as f64 / start.elapsed().as_secs_f64() / 1e6;
    while near.outstanding() > 0 && near.take(batch, |_| ()).is_ok() {}
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_measured() {
        let options = Options {
            batches: vec![1, 32],
            headers: vec![64, 128],
            time: Duration::from_millis(5),
            round_trips: 1000,
        };
        // On a busy machine the other end may not run at all in this short time.
        let measured = (0..50).any(|_| {
            let rows = run(&options, |_| ()).unwrap();
            assert_eq!(rows.len(), 4);
            rows.iter().all(|r| r.mpps > 0.0 && r.round_trip_ns.p50 > 0.0)
        });
        assert!(measured);
    }
}
