//! Prints what a packet costs on the mediator's core: submitting it, and polling it out again once it was judged.
//!
//! `cargo run --release -p p4shield-mediator --example mediator_cost`
//!
//! The judge runs in between, on the same core and off the clock, so that this is the mediator's work and not the
//! wait for the P4 VM (`p4shield-channel` measures that).

use p4shield_abi::channel::{BATCH, Geometry};
use p4shield_channel::{Doorbell, Judge, Reply, Requester, create_channel};
use p4shield_mediator::{
    Config, Link, Mediator, Others, Packet, PortSpec, RewriteRefused, Source, Stages, TenantConfig, VmConfig,
};
use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// A packet in a pool that lives as long as the program, as UMEM frames and mbufs do.
struct Pooled(Box<[u8]>);

impl Packet for Pooled {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        if old_len != new.len() || new_total_len != self.0.len() {
            return Err(RewriteRefused);
        }
        self.0[..old_len].copy_from_slice(new);
        Ok(())
    }
}

fn packet(source: u8, destination: u8) -> Pooled {
    let mut bytes = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0, 0x45];
    bytes.resize(26, 0);
    bytes.extend([10, 0, 0, source, 10, 0, 0, destination]);
    bytes.resize(200, 0);
    Pooled(bytes.into_boxed_slice())
}

/// A mediator of two tenants, each with a VM, and their judges.
fn set_up(geometry: Geometry) -> Result<(Mediator<Pooled>, Vec<Judge>), Box<dyn Error>> {
    let tenant = |t: u8| TenantConfig {
        deadline: Duration::from_secs(3600),
        stall: None,
        ..TenantConfig::new(
            format!("t{t}"),
            vec![VmConfig { name: "vm".into(), addresses: vec![Ipv4Addr::new(10, 0, 0, t).into()] }],
        )
    };
    let mut mediator = Mediator::new(&Config { tenants: vec![tenant(0), tenant(1)] })?;
    let mut judges = Vec::new();
    for t in 0..2 {
        let memory = create_channel("measure", geometry)?;
        judges.push(Judge::new(memory.map_again()?, geometry)?);
        // The judges here never sleep, so nobody rings.
        let (doorbell, _) = Doorbell::pair()?;
        mediator.replace_channel(
            0,
            t,
            Some(Link { requester: Requester::new(memory, geometry)?, doorbell }),
        )?;
    }
    Ok((mediator, judges))
}

fn judge(judges: &mut [Judge], rewrite: bool) -> Result<(), Box<dyn Error>> {
    for judge in judges {
        let mut frames = Vec::new();
        judge.fetch_with(BATCH, |request, frame| {
            let mut header = vec![0; frame.len()];
            frame.copy_to(&mut header);
            frames.push((header, request.packet_len));
        })?;
        for (header, packet_len) in &frames {
            let rewritten = Reply::Rewritten { header, packet_len: *packet_len };
            judge.answer(if rewrite { rewritten } else { Reply::Pass })?;
        }
        let _ = judge.publish();
    }
    Ok(())
}

/// Nanoseconds a packet, median over many bursts of 32.
fn cost(header_bytes: u32, source: u8, destination: u8, rewrite: bool) -> Result<f64, Box<dyn Error>> {
    let geometry = Geometry { header_bytes, ..Geometry::default() };
    let (mut mediator, mut judges) = set_up(geometry)?;
    let port = PortSpec { number: 0, stages: Stages::Both, others: Others::Pass, source: Source::Any };
    let mut pool: Vec<Pooled> = (0..BATCH).map(|_| packet(source, destination)).collect();
    let mut bursts = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        let now = u64::try_from(start.elapsed().as_nanos())?;
        let mut spent = Duration::ZERO;
        let mut out = Vec::with_capacity(BATCH);
        let begin = Instant::now();
        for packet in pool.drain(..) {
            if let Some(released) = mediator.submit(now, &port, packet) {
                out.push(released.packet);
            }
        }
        mediator.flush(now);
        spent += begin.elapsed();
        while out.len() < BATCH {
            judge(&mut judges, rewrite)?;
            let begin = Instant::now();
            mediator.poll(now, BATCH, |released| out.push(released.packet));
            spent += begin.elapsed();
        }
        bursts.push(spent.as_nanos());
        pool = out;
    }
    bursts.sort_unstable();
    Ok(bursts[bursts.len() / 2] as f64 / BATCH as f64)
}

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("nanoseconds a packet on the mediator's core, bursts of 32, clock included");
    for (what, header_bytes, source, destination, rewrite) in [
        ("of nobody, passed", 128, 8, 9, false),
        ("one tenant", 128, 0, 9, false),
        ("one tenant, rewritten", 128, 0, 9, true),
        ("one tenant, 64-byte headers", 64, 0, 9, false),
        ("between two tenants", 128, 0, 1, false),
        ("between two tenants, rewritten twice", 128, 0, 1, true),
    ] {
        println!("{:>8.1}  {what}", cost(header_bytes, source, destination, rewrite)?);
    }
    Ok(())
}
