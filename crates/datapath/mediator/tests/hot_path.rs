//! The hot path allocates nothing and makes no system call: the loop runs with an allocator that
//! counts, and in a process that the kernel kills at its first system call.

use p4shield_abi::channel::{BATCH, Geometry};
use p4shield_channel::{Doorbell, RequestBatch, Requester, Responder, Response, create_channel};
use p4shield_mediator::{
    AllowedSources, Config, Disposition, Mediator, Network, P4VmChannel, Packet, PortSpec, ReleasedPacket,
    RewriteRefused, Stages, TenantConfig, UnownedPolicy, VmConfig,
};
use p4shield_testbed::allocations::{Counting, allocations};
use std::net::Ipv4Addr;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone, Copy)]
struct Frame {
    bytes: [u8; 128],
}

impl Packet for Frame {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    fn len(&self) -> usize {
        self.bytes.len()
    }
    fn replace_head(
        &mut self,
        old_len: usize,
        new: &[u8],
        new_total_len: usize,
    ) -> Result<(), RewriteRefused> {
        if old_len != new.len() || new_total_len != self.bytes.len() {
            return Err(RewriteRefused);
        }
        self.bytes[..old_len].copy_from_slice(new);
        Ok(())
    }
}

fn frame(source: u8, destination: u8) -> Frame {
    let mut bytes = [0; 128];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[26..34].copy_from_slice(&[10, 0, 0, source, 10, 0, 0, destination]);
    Frame { bytes }
}

struct Setup {
    mediator: Mediator<Frame>,
    responders: Vec<(Responder, RequestBatch)>,
    _bells: Vec<Doorbell>,
}

const PORT: PortSpec = PortSpec {
    network: Network::Unknown,
    number: 0,
    stages: Stages::Both,
    unowned: UnownedPolicy::Pass,
    source: AllowedSources::Any,
};

fn set_up() -> Setup {
    let geometry = Geometry { slots: 64, ..Geometry::default() };
    // No stall: detaching a P4 VM unmaps its channel, which is not the hot path.
    let tenant = |t: u8| {
        let vm = VmConfig::new("vm", vec![Ipv4Addr::new(10, 0, 0, t).into()]);
        TenantConfig { max_held: 64, stall: None, ..TenantConfig::new(format!("t{t}"), vec![vm]) }
    };
    let mut mediator =
        Mediator::new(&Config { tenants: vec![tenant(0), tenant(1)] }).expect("a valid configuration");
    let (mut responders, mut bells) = (Vec::new(), Vec::new());
    for t in 0..2 {
        let memory = create_channel("hot", geometry).expect("memory");
        let responder = Responder::new(memory.map_again().expect("memory"), geometry).expect("valid");
        responders.push((responder, RequestBatch::new(&geometry)));
        let (doorbell, bell) = Doorbell::pair().expect("sockets");
        bells.push(bell);
        let channel = P4VmChannel { requester: Requester::new(memory, geometry).expect("valid"), doorbell };
        mediator.replace_channel(0, t, Some(channel)).expect("the tenant exists");
    }
    Setup { mediator, responders, _bells: bells }
}

/// Passes, drops and rewrites in turn.
fn answer(setup: &mut Setup) {
    for (responder, batch) in &mut setup.responders {
        if responder.fetch(batch).is_err() {
            return;
        }
        for (i, entry) in batch.iter_mut().enumerate() {
            let packet = &entry.frame[entry.start..entry.start + entry.len];
            let rewritten = Response::Rewritten { header: packet, packet_len: entry.request.packet_len };
            let _ = responder.respond([Response::Pass, Response::Drop, rewritten][i % 3]);
        }
        let _ = responder.publish();
    }
}

/// Submits packets that are unowned, of one tenant, between two tenants, too many and too late.
/// Returns how many went in and came out.
fn run(setup: &mut Setup) -> (usize, usize) {
    let (mut submitted, mut out, mut passed) = (0, 0, 0);
    let mut take = |released: ReleasedPacket<Frame>| {
        out += 1;
        passed += usize::from(released.disposition == Disposition::Pass);
    };
    for round in 0..1000_u64 {
        let now = round * 200_000;
        let burst = if round % 7 == 0 { 3 * BATCH } else { BATCH };
        let packet = |i: usize| [frame(0, 9), frame(9, 1), frame(0, 1), frame(8, 9)][i % 4];
        submitted += burst;
        if round % 2 == 0 {
            setup.mediator.submit_burst(now, &PORT, (0..burst).map(packet), &mut take);
        } else {
            for released in (0..burst).filter_map(|i| setup.mediator.submit(now, &PORT, packet(i))) {
                take(released);
            }
        }
        setup.mediator.poll(now, BATCH, &mut take);
        if round % 10 < 8 {
            answer(setup);
        }
        setup.mediator.poll(now, usize::MAX, &mut take);
        let _ = setup.mediator.next_deadline(now);
    }
    for _ in 0..4 {
        setup.mediator.poll(u64::MAX / 2, usize::MAX, &mut take);
    }
    assert!(passed > 1000, "most packets pass");
    (submitted, out)
}

#[test]
fn nothing_is_allocated() {
    let mut setup = set_up();
    let before = allocations();
    let (submitted, out) = run(&mut setup);
    assert_eq!(allocations(), before);
    assert_eq!(submitted, out);
}

/// In strict mode a process may `read`, `write`, `exit` and return from signals; any other call kills it.
#[test]
fn no_system_call_is_made() {
    let mut setup = set_up();
    // SAFETY: the child touches only memory that was allocated before, and ends by the bare `exit` call.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: strict mode takes no pointers; `exit` does not return.
        unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT);
            let (submitted, out) = run(&mut setup);
            libc::syscall(libc::SYS_exit, i32::from(submitted != out));
        }
    }
    let mut status = 0;
    // SAFETY: `status` is valid, and the process is this test's child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "killed by signal {}: a system call", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "every packet came out");
}
