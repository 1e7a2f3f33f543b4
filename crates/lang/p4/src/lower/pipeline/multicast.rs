//! Packets that `v1model` sends to a multicast group.
//!
//! One run produces one packet. A run whose ingress chooses a group therefore reports the group and drops
//! the packet. For each copy, the program runs again on the original packet: ingress makes the same
//! decisions, and egress learns the number of its copy. This matches the architecture only if the second
//! run of ingress has no visible effect. So this module refuses a program that keeps state between
//! packets before egress, and a host that cannot replicate packets refuses to load the object.

use super::Lowering;
use crate::diagnostics::Code;
use crate::ir::{BinOp, Cc, Function, Inst, Op, Opnd, Term, Ty};
use crate::source::Span;
use p4shield_abi::context::{action, offset};
use p4shield_abi::helper::{self, algorithm};

/// `instance_type` of copies, as in the reference switch.
const REPLICATION: u64 = 5;

impl Lowering<'_> {
    /// Starts to record where the program chooses a group.
    pub(super) fn watch_group(&mut self) {
        if let Some((slot, _)) = self.standard_field("mcast_grp") {
            self.b.watch(slot);
        }
    }

    /// Handles packets with a group; continues with packets without one and with copies.
    /// Returns the port.
    pub(super) fn multicast(&mut self, group: Opnd, ingress: Span) -> Opnd {
        let chosen = self.b.watched().unwrap_or(ingress);
        self.multicast = Some(chosen);
        let what = "this program sends packets to a multicast group: no P4 VM will load it";
        let hint = "`p4shield test` replicates packets; in front of a switch, leave that to the switch";
        self.sink.report(Code::Unused, chosen, what, hint);
        if let Some(kept) = self.kept_state() {
            let what = "a multicast group in a program that keeps state between packets before egress";
            self.unsupported(kept, what);
        }
        let port = self.b.slot(Ty::Int(16));
        let [grouped, alone, copy, send, egress] =
            ["grouped", "alone", "copy", "send to group", "egress"].map(|label| self.b.new_block(label));
        let has_group = self.b.cmp(Cc::Ne, group, Opnd::C(0), 16);
        self.b.branch(has_group, grouped, alone);
        self.b.switch_to(grouped);
        let asked = self.context(offset::OUTPUT_ACTION, 4);
        let is_copy = self.b.cmp(Cc::Eq, asked, Opnd::C(action::COPY.into()), 32);
        self.b.branch(is_copy, copy, send);
        self.b.switch_to(send);
        self.b.emit(Op::SetContext(offset::OUTPUT_ACTION, 4, Opnd::C(action::REPLICATE.into())), Ty::None);
        self.b.emit(Op::SetContext(offset::OUTPUT_PORT, 4, group), Ty::None);
        self.b.ret(Opnd::C(0));
        self.b.switch_to(copy);
        let chosen = self.copy_port();
        self.b.write(port, chosen);
        self.b.jump(egress);
        self.b.switch_to(alone);
        let chosen = self.unicast();
        self.b.write(port, chosen);
        self.b.jump(egress);
        self.b.switch_to(egress);
        self.b.read(port)
    }

    /// Passes the number of the copy to egress; returns its port.
    fn copy_port(&mut self) -> Opnd {
        let which = self.context(offset::OUTPUT_PORT, 4);
        let replica = self.b.bin(BinOp::Shr, which, Opnd::C(16), 32);
        self.set_standard("egress_rid", replica);
        self.set_standard("instance_type", Opnd::C(REPLICATION));
        self.b.truncate(which, 16)
    }

    /// Returns the location of an operation that a second run would repeat or perform differently.
    fn kept_state(&self) -> Option<Span> {
        let maps = &self.b.f.maps;
        let is_array = |m: usize| self.arrays.iter().any(|a| a.map == maps[m].name);
        let kept = |i: &&Inst| match &i.op {
            Op::StoreMap { .. } | Op::Extern { .. } => true,
            Op::Lookup { map, .. } => is_array(map.0 as usize),
            Op::Helper { id, .. } => {
                matches!(*id, helper::GET_PRANDOM_U32 | helper::KTIME_GET_NS | helper::METER)
            }
            Op::Buffer { args, .. } => args.first() == Some(&Opnd::C(algorithm::RANDOM.into())),
            _ => false,
        };
        self.b.f.insts.iter().find(kept).map(|i| i.span)
    }
}

/// Whether a finished program may send packets to groups.
pub(crate) fn replicates(f: &Function) -> bool {
    let replicate = u64::from(action::REPLICATE);
    let sends =
        |i: &Inst| matches!(i.op, Op::SetContext(offset::OUTPUT_ACTION, _, Opnd::C(a)) if a == replicate);
    let live = f.blocks.iter().filter(|b| b.term != Term::None);
    live.flat_map(|b| &b.insts).any(|v| sends(f.inst(*v)))
}
