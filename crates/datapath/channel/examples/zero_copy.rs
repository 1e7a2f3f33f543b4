//! Prints the cost of a packet at both ends of a channel, with header copies and with shared packet memory.
//!
//! `cargo run --release -p p4shield-channel --example zero_copy`
//!
//! The mediator's thread writes each packet before it submits it, like a network card or a kernel.
//! The P4 VM's thread copies each header into private memory, as it has to in both cases.

use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::{PacketMemory, RequestBatch, Requester, Responder, Response, create_channel};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::error::Error;
use std::hint::spin_loop;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Frames, and bytes per frame, as in Open vSwitch.
const FRAMES: usize = 4096;
const FRAME: usize = 2048;
/// Packets of a round, published in batches of 32.
const PACKETS: usize = 1 << 20;
const BATCH: usize = 32;
const ROUNDS: usize = 5;

/// Returns packet memory, writable here, and its descriptor.
fn packet_memory() -> Result<(&'static mut [u8], OwnedFd), Box<dyn Error>> {
    let fd = memfd_create("packets", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, (FRAMES * FRAME) as u64)?;
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
    // SAFETY: a new mapping, never unmapped, and the only one that is written.
    let bytes = unsafe {
        let at = mmap(std::ptr::null_mut(), FRAMES * FRAME, prot, flags, &fd, 0)?;
        std::slice::from_raw_parts_mut(at.cast::<u8>(), FRAMES * FRAME)
    };
    PacketMemory::seal(&fd)?;
    Ok((bytes, fd))
}

fn respond(mut responder: Responder, geometry: &Geometry) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (mut batch, mut answered) = (RequestBatch::new(geometry), 0);
    while answered < PACKETS {
        let fetched = responder.fetch(&mut batch)?;
        for _ in 0..fetched {
            responder.respond(Response::Pass)?;
        }
        answered += fetched;
        let _ = responder.publish();
        if fetched == 0 {
            spin_loop();
        }
    }
    Ok(())
}

/// Returns the nanoseconds per packet until its verdict is taken, with both ends working in parallel.
fn measure(len: usize, zero_copy: bool) -> Result<f64, Box<dyn Error>> {
    let geometry = Geometry { header_bytes: len as u32, ..Geometry::default() };
    let (bytes, fd) = packet_memory()?;
    let memory = create_channel("zero-copy", geometry)?;
    let mut far = Responder::new(memory.map_again()?, geometry)?;
    let mut near = Requester::new(memory, geometry)?;
    if zero_copy {
        far = far.with_packet_memory(PacketMemory::from_fd(&fd, bytes.len())?);
        near = near.with_packet_memory(bytes.as_ptr_range().start.addr()..bytes.as_ptr_range().end.addr());
    }
    std::thread::scope(|scope| {
        let responding = scope.spawn(move || respond(far, &geometry));
        let (start, mut pushed, mut taken) = (Instant::now(), 0, 0);
        while taken < PACKETS {
            for _ in 0..BATCH.min(near.room()).min(PACKETS - pushed) {
                let frame = &mut bytes[pushed % FRAMES * FRAME..][..len];
                frame.fill(pushed as u8);
                near.push(
                    &Request { id: pushed as u64, packet_len: len as u32, ..Request::default() },
                    frame,
                )?;
                pushed += 1;
            }
            let _ = near.publish();
            taken += near.take(2 * BATCH, |_| ())?;
        }
        let time = start.elapsed();
        responding.join().map_err(|_| "the P4 VM thread panicked")?.map_err(|e| e.to_string())?;
        Ok(time.as_secs_f64() * 1e9 / PACKETS as f64)
    })
}

#[expect(clippy::print_stdout, reason = "the example prints its results")]
fn main() -> Result<(), Box<dyn Error>> {
    for len in [64, 128, 1400] {
        let mut figures = [const { Vec::new() }; 2];
        for _ in 0..ROUNDS {
            for (way, zero_copy) in figures.iter_mut().zip([false, true]) {
                way.push(measure(len, zero_copy)?);
            }
        }
        let [copies, zero_copy] = figures.map(|mut f| {
            f.sort_unstable_by(f64::total_cmp);
            f[ROUNDS / 2]
        });
        println!(
            "{len:>5} bytes: copies {copies:6.1} ns, zero-copy {zero_copy:6.1} ns, {:.2} times",
            zero_copy / copies
        );
    }
    Ok(())
}
