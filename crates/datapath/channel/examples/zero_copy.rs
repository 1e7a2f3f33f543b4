//! Prints what a packet costs both ends of a channel with header copies, and where the P4 VM reads the packet memory.
//!
//! `cargo run --release -p p4shield-channel --example zero_copy`
//!
//! The mediator's thread writes each packet before it asks about it, as a network card or a kernel would have; the P4 VM's
//! copies what it is handed into memory of its own, as it has to in both ways.

use p4shield_abi::channel::{Geometry, Request};
use p4shield_channel::{PacketMemory, RequestBatch, Requester, Responder, Response, create_channel};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::error::Error;
use std::hint::spin_loop;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// As Open vSwitch has it: frames, and bytes of each.
const FRAMES: usize = 4096;
const FRAME: usize = 2048;
/// Packets of a round, published together by 32.
const PACKETS: usize = 1 << 20;
const BATCH: usize = 32;
const ROUNDS: usize = 5;

/// Packet memory, written here, and its descriptor.
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

fn judge(mut judge: Responder, geometry: &Geometry) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (mut batch, mut judged) = (RequestBatch::new(geometry), 0);
    while judged < PACKETS {
        let fetched = judge.fetch(&mut batch)?;
        for _ in 0..fetched {
            judge.respond(Response::Pass)?;
        }
        judged += fetched;
        let _ = judge.publish();
        if fetched == 0 {
            spin_loop();
        }
    }
    Ok(())
}

/// Nanoseconds a packet until its verdict is taken, both ends working at once.
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
        let judging = scope.spawn(move || judge(far, &geometry));
        let (start, mut asked, mut taken) = (Instant::now(), 0, 0);
        while taken < PACKETS {
            for _ in 0..BATCH.min(near.room()).min(PACKETS - asked) {
                let frame = &mut bytes[asked % FRAMES * FRAME..][..len];
                frame.fill(asked as u8);
                near.push(
                    &Request { id: asked as u64, packet_len: len as u32, ..Request::default() },
                    frame,
                )?;
                asked += 1;
            }
            let _ = near.publish();
            taken += near.take(2 * BATCH, |_| ())?;
        }
        let time = start.elapsed();
        judging.join().map_err(|_| "the judge panicked")?.map_err(|e| e.to_string())?;
        Ok(time.as_secs_f64() * 1e9 / PACKETS as f64)
    })
}

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
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
