//! Step 3 of a packet's way through the P4 VM: one program judges one packet.
//!
//! [`judge`] runs the program (`p4shield_bpf`), counts and audits the packet, and passes the verdict to the
//! channel. The way goes on in the mediator, which reads the verdict.

use super::vm::PacketContext;
use p4shield_abi::channel::Request;
use p4shield_abi::{Direction, Verdict};
use p4shield_bpf::Packet;
use p4shield_channel::{Response, ResponseRefused};

/// The verdict on packets of a direction that has no program and for which none is configured.
pub type NoProgram = Verdict;

/// Judges one packet of a VM; see [`super::TenantPrograms::judge_packet`].
#[inline]
pub(super) fn judge(
    packet: &mut Packet,
    (vm, direction): (PacketContext<'_>, Direction),
    no_program: NoProgram,
    header_bytes: u32,
    request: &Request,
    mut respond: impl FnMut(Response<'_>) -> Result<(), ResponseRefused>,
) {
    let PacketContext { state, info, mut audit } = vm;
    state.received(request.packet_len);
    if let Some(audit) = &mut audit {
        audit.received(direction, packet.bytes(), request.packet_len);
    }
    let Some(program) = state.program() else {
        state.judged_without_program();
        match state.verdict_without_program(no_program) {
            Verdict::Pass if respond(Response::Pass).is_ok() => {
                state.passed(request.packet_len);
                if let Some(audit) = audit {
                    audit.passed();
                }
            }
            _ => {
                respond_drop(&mut respond);
                state.dropped(request.packet_len);
                state.failed();
            }
        }
        return;
    };
    let result = program.run(packet, &meta(request), info);
    if result.stopped.is_some() {
        state.failed();
    } else if result.undecided {
        state.undecided();
    } else if let Some(limit) = result.limit {
        state.met(limit);
    }
    if result.verdict != Verdict::Pass {
        respond_drop(&mut respond);
        state.dropped(request.packet_len);
    } else if !result.rewritten {
        if respond(Response::Pass).is_ok() {
            state.passed(request.packet_len);
            if let Some(audit) = audit {
                audit.passed();
            }
        }
    } else if respond(Response::Rewritten { header: packet.bytes(), packet_len: packet.total() }).is_ok() {
        state.passed(packet.total());
        if let Some(audit) = audit {
            // The auditor compares the agreed number of header bytes, however far the header has grown.
            let audited = &packet.bytes()[..packet.len().min(header_bytes as usize)];
            audit.passed_as(direction, audited, packet.total());
        }
    } else {
        // The channel refused the rewrite, which does not fit.
        respond_drop(&mut respond);
        state.dropped(request.packet_len);
        state.failed();
    }
}

/// Responds to a request with `Drop`.
#[inline]
pub(super) fn respond_drop(respond: &mut impl FnMut(Response<'_>) -> Result<(), ResponseRefused>) {
    // A first response to a fetched request cannot be refused unless it is a rewrite.
    let refused = respond(Response::Drop);
    debug_assert_eq!(refused, Ok(()));
}

fn meta(request: &Request) -> p4shield_bpf::Meta {
    p4shield_bpf::Meta {
        input_port: request.input_port,
        direction: u32::from(request.direction),
        vm: u32::from(request.vm),
        timestamp_ns: request.timestamp_ns,
    }
}
