//! Placement `inline`: a tenant's programs run in the switch's process instead of a P4 VM.
//!
//! The placement isolates no party: only its verification and the engine confine a program, and the process
//! holds the tenant's key. It is the baseline for measuring P4 VMs. Programs, information, digests and log
//! are those of a P4 VM.
//!
//! A P4 VM of the tenant's, which receives no packets, verifies the programs; this module loads only a
//! program with the digest that was verified there.

use crate::program::Prover;
use crate::request_handler::RequestHandler;
use crate::worker::{ProgramRunner, TenantPrograms, UNSUPPORTED, WorkerAnswer, WorkerCommand, steady_ns};
use p4shield_abi::channel::{self, Geometry};
use p4shield_bpf::{Linked, Packet, Verified};
use p4shield_channel::ResponseRefused;
use p4shield_control::{Delivered, Hello, PROTOCOL_VERSION, Reply, Request, SandboxReport, Status};
use p4shield_seal::Now;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One tenant's programs, with one set of maps for all threads.
struct Core {
    tenant: TenantPrograms,
    header_bytes: u32,
}

/// Management of one tenant's programs in this process.
pub struct InlinePrograms {
    handler: RequestHandler<Approved, Shared>,
    geometry: Geometry,
    /// Whether a thread has a handle.
    begun: bool,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Core>>);

/// The digest of the next program, which a verifier elsewhere accepted.
#[derive(Default)]
struct Approved(Option<[u8; 32]>);

impl Prover for Approved {
    #[allow(unsafe_code)]
    fn prove(&mut self, linked: Linked) -> Result<Verified, String> {
        if self.0.take() != Some(linked.digest()) {
            return Err(
                "this is not the program that was verified; restart the switch, or the daemon, so that both \
                 are of one version"
                    .to_owned(),
            );
        }
        // SAFETY: the verifier accepted the program of this digest, which covers everything that is loaded.
        Ok(unsafe { Verified::assume(linked) })
    }
}

impl ProgramRunner for Shared {
    fn send(&self, order: WorkerCommand) -> Option<WorkerAnswer> {
        // A panic in a program's run leaves counters that lack one packet; the state stays usable.
        let mut core = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(match order {
            WorkerCommand::Status => {
                WorkerAnswer::Status(Box::new(Status { channels: Vec::new(), vms: core.tenant.statuses() }))
            }
            order => {
                let header_bytes = core.header_bytes;
                order.apply_to(&mut core.tenant, header_bytes)
            }
        })
    }
}

impl InlinePrograms {
    /// Starts with the daemon's first message.
    ///
    /// # Errors
    /// The message is invalid.
    pub fn new(hello: &Hello, geometry: Geometry) -> Result<Self, String> {
        if !geometry.is_valid() {
            return Err(format!("programs cannot have the geometry {geometry:?}"));
        }
        let interval = Duration::from_millis(hello.log_interval_ms.into());
        let tenant = TenantPrograms::new(p4shield_control::verdict(hello.no_program), interval);
        let core = Core { tenant, header_bytes: geometry.header_bytes };
        let mut handler = RequestHandler::new(Approved::default(), Shared(Arc::new(Mutex::new(core))));
        handler.handle_hello(hello)?;
        Ok(Self { handler, geometry, begun: false })
    }

    /// Returns the answer to [`Request::Hello`]; there is no sandbox to report.
    #[must_use]
    pub fn greeting() -> Reply {
        Reply::Hello { version: PROTOCOL_VERSION, sandbox: SandboxReport::default() }
    }

    /// Executes a request; a loaded program must have the digest `approved`.
    pub fn handle(&mut self, request: Request, approved: Option<[u8; 32]>, resources: Delivered) -> Reply {
        let handshakes = matches!(request, Request::SetVm { handshake: Some(_), .. });
        if handshakes || matches!(request, Request::AttachChannel { .. } | Request::DetachChannel { .. }) {
            return Reply::Failed(UNSUPPORTED.to_owned());
        }
        self.handler.verifier = Approved(approved);
        self.handler.handle(request, resources).unwrap_or_else(Reply::Failed)
    }

    /// Updates information and logs of a tenant without traffic. Called periodically; does nothing while
    /// another thread runs programs.
    pub fn maintain(&self) {
        if let Ok(mut core) = self.handler.worker.0.try_lock() {
            core.poll_if_due();
        }
    }

    /// Returns a handle for a switch's thread.
    #[must_use]
    pub fn engine(&mut self) -> InlineHandle {
        self.begun = true;
        InlineHandle::new(self.handler.worker.clone(), self.geometry)
    }
}

impl Drop for InlinePrograms {
    fn drop(&mut self) {
        // Programs without a handle have no log records; an empty record would open a later epoch.
        if !self.begun {
            return;
        }
        // Publishes the last log records, as a P4 VM does when it stops.
        let mut core = self.handler.worker.0.lock().unwrap_or_else(PoisonError::into_inner);
        let header_bytes = core.header_bytes;
        core.tenant.publish_logs(Now::read(), header_bytes);
    }
}

impl Core {
    fn poll_if_due(&mut self) {
        if self.tenant.is_poll_due(steady_ns()) {
            self.tenant.poll_pages(Now::read(), self.header_bytes);
        }
    }
}

/// A thread's access to a tenant's programs.
pub struct InlineHandle {
    shared: Shared,
    geometry: Geometry,
    packet: Packet,
}

impl InlineHandle {
    fn new(shared: Shared, geometry: Geometry) -> Self {
        let packet = Packet::new(geometry.headroom as usize, geometry.header_bytes as usize);
        Self { shared, geometry, packet }
    }

    /// Returns a handle for another thread.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(self.shared.clone(), self.geometry)
    }

    /// Runs `work` with exclusive access to the programs. Returns false at once if another thread has access.
    #[inline]
    pub fn run(&mut self, work: impl FnOnce(&mut InlineGuard<'_>)) -> bool {
        let Ok(mut core) = self.shared.0.try_lock() else { return false };
        core.poll_if_due();
        let longest = (self.geometry.headroom + self.geometry.header_bytes) as usize;
        work(&mut InlineGuard { core: &mut core, packet: &mut self.packet, longest });
        true
    }
}

/// Exclusive access of one thread to the programs.
pub struct InlineGuard<'a> {
    core: &'a mut Core,
    packet: &'a mut Packet,
    longest: usize,
}

impl InlineGuard<'_> {
    /// Returns the most header bytes that programs read of a packet.
    #[must_use]
    #[inline]
    pub fn header_bytes(&self) -> usize {
        self.core.header_bytes as usize
    }

    /// Judges a packet that begins with `header`.
    #[inline]
    pub fn judge(&mut self, request: &channel::Request, header: &[u8]) -> p4shield_channel::Response<'_> {
        use p4shield_channel::Response as Verdict;
        let (mut passes, mut rewritten) = (false, None);
        let copied = u32::try_from(header.len()).unwrap_or(u32::MAX);
        let longest = self.longest;
        self.packet.reset(header, request.packet_len);
        self.core.tenant.judge_packet(self.packet, request, self.core.header_bytes, |reply| {
            match reply {
                Verdict::Drop => {}
                Verdict::Pass => passes = true,
                Verdict::Rewritten { header, packet_len } => {
                    // What a channel allows.
                    let len = header.len();
                    let (min, frame) = (u32::try_from(len).unwrap_or(u32::MAX), longest as u32);
                    let max = request.packet_len.saturating_sub(copied).saturating_add(min);
                    if len > longest || !(min..=max).contains(&packet_len) {
                        return Err(ResponseRefused::Rewrite { len, packet_len, frame, min, max });
                    }
                    rewritten = Some(packet_len);
                }
            }
            Ok(())
        });
        match rewritten {
            Some(packet_len) => Verdict::Rewritten { header: self.packet.bytes(), packet_len },
            None if passes => Verdict::Pass,
            None => Verdict::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_abi::{Direction, Verdict};
    use p4shield_control::{ProgramSlot, ResourceId, VmKeys};
    use rustix::fs::{MemfdFlags, memfd_create};

    fn hello(no_program: Verdict) -> Hello {
        Hello {
            version: PROTOCOL_VERSION,
            tenant: "alice".into(),
            door: None,
            no_program: no_program as u8,
            age_limit_ms: 1000,
            log_interval_ms: 100,
            budget: 1 << 16,
            min_epoch: 0,
        }
    }

    fn programs() -> InlinePrograms {
        let mut programs = InlinePrograms::new(&hello(Verdict::Pass), Geometry::default()).unwrap();
        let vm =
            Request::SetVm { vm: 0, name: "web".into(), info: None, log: None, handshake: None, keys: None };
        assert_eq!(programs.handle(vm, None, Delivered::default()), Reply::Done);
        programs
    }

    fn verdict(judge: &mut InlineHandle, vm: u16) -> bool {
        let header = [0; 60];
        let asked = channel::Request { vm, packet_len: 60, copy_len: 60, ..channel::Request::default() };
        let mut passes = false;
        assert!(judge.run(|j| passes = j.judge(&asked, &header) == p4shield_channel::Response::Pass));
        passes
    }

    #[test]
    fn packets_are_judged_and_counted_as_in_a_p4_vm() {
        let mut programs = programs();
        let (mut one, mut other) = (programs.engine(), programs.engine());
        assert!(verdict(&mut one, 0) && verdict(&mut other, 0));
        assert!(!verdict(&mut one, 1), "an unknown VM has no program that could pass its packets");
        let Reply::Status(status) = programs.handle(Request::Status, None, Delivered::default()) else {
            panic!()
        };
        assert_eq!((status.vms[0].directions[0].judged, status.vms[0].directions[0].passed), (2, 2));
    }

    #[test]
    fn one_thread_judges_at_a_time_and_the_other_does_not_wait() {
        let mut programs = programs();
        let (mut one, mut other) = (programs.engine(), programs.engine());
        assert!(one.run(|_| assert!(!other.run(|_| panic!("two at a time")))));
        assert!(other.run(|_| {}));
    }

    #[test]
    fn a_configured_program_that_does_not_run_is_no_pass() {
        let mut programs = programs();
        let mut engine = programs.engine();
        let slot = ProgramSlot::new(0, Direction::Ingress);
        let expect = Request::ExpectProgram { slot, fallback: Verdict::Drop as u8 };
        assert_eq!(programs.handle(expect, None, Delivered::default()), Reply::Done);
        assert!(!verdict(&mut engine, 0), "the tenant's fail policy applies, not no_program");
        let unload = Request::UnloadProgram { slot };
        assert_eq!(programs.handle(unload, None, Delivered::default()), Reply::Done);
        assert!(verdict(&mut engine, 0), "no program is configured any more");
    }

    #[test]
    fn a_vms_key_rotates_as_in_a_p4_vm() {
        let mut programs = programs();
        let file = |bytes: &[u8]| {
            let fd = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
            rustix::io::write(&fd, bytes).unwrap();
            fd
        };
        let log = Some(ResourceId(0));
        let keys = Some(VmKeys { current: ResourceId(1), previous: None });
        let vm = Request::SetVm { vm: 1, name: "db".into(), info: None, log, handshake: None, keys };
        let page = file(&vec![0; p4shield_abi::log_page::LOG_PAGE_SIZE]);
        assert_eq!(programs.handle(vm, None, vec![page, file(&[1; 32])].into()), Reply::Done);
        let rotate = |vm| Request::SetKeys { vm, key: ResourceId(0), window_ms: 600_000 };
        assert_eq!(programs.handle(rotate(1), None, vec![file(&[2; 32])].into()), Reply::Done);
        assert!(matches!(programs.handle(rotate(0), None, vec![file(&[2; 32])].into()), Reply::Failed(_)));
        let Reply::Status(status) = programs.handle(Request::Status, None, Delivered::default()) else {
            panic!()
        };
        let keys = status.vms[1].keys.unwrap();
        assert_eq!(keys.current, p4shield_seal::TenantKey::from_bytes([2; 32]).id().0);
        assert!(!keys.log_follows && keys.previous_ms > Some(590_000), "{keys:?}");
    }

    #[test]
    fn only_what_was_verified_is_loaded() {
        let mut programs = programs();
        let fd = memfd_create("object", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, b"no object").unwrap();
        let slot = ProgramSlot::new(0, Direction::Ingress);
        let load =
            Request::LoadProgram { slot, name: "program".into(), objects: ResourceId(0), lengths: vec![9] };
        assert!(matches!(programs.handle(load, Some([0; 32]), vec![fd].into()), Reply::Refused(_)));
        let linked = p4shield_bpf::asm::assemble("mov r0, 1\nexit").unwrap();
        let digest = linked.digest();
        assert!(Approved(None).prove(linked.clone()).is_err());
        assert!(Approved(Some([1; 32])).prove(linked.clone()).is_err());
        let mut approved = Approved(Some(digest));
        assert!(approved.prove(linked.clone()).is_ok());
        assert!(approved.prove(linked).is_err(), "for one program, once");
    }

    #[test]
    fn what_only_a_p4_vm_can_do_is_refused() {
        let mut programs = programs();
        let geometry = Geometry::default().into();
        let [memory, doorbell] = [0, 1].map(ResourceId);
        let attach = Request::AttachChannel { channel: 1, geometry, memory, doorbell, packets: None };
        assert!(matches!(programs.handle(attach, None, Delivered::default()), Reply::Failed(_)));
        assert!(matches!(
            programs.handle(Request::Hello(hello(Verdict::Drop)), None, Delivered::default()),
            Reply::Failed(_)
        ));
        let odd = Geometry { slots: 3, ..Geometry::default() };
        assert!(InlinePrograms::new(&hello(Verdict::Drop), odd).is_err());
    }
}
