//! Packets that `v1model` sends to a multicast group.
//!
//! One run makes one packet. A run whose ingress chooses a group therefore tells the group and drops, and for each copy the
//! program is run again on the packet as it came: ingress decides the same once more, and egress is told which copy it makes.
//! That is what the architecture means only if it does not show that ingress ran again, so a program that keeps something
//! between packets before egress is refused here; and whoever cannot replicate packets refuses the object when it is loaded.

use super::Lower;
use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{BinOp, Cc, Function, Inst, Op, Opnd, Term, Ty};
use crate::source::Span;
use p4shield_abi::context::{action, offset};
use p4shield_abi::helper::{self, algorithm};

/// `instance_type` of copies, as the reference switch has it.
const REPLICATION: u64 = 5;

impl Lower<'_> {
    /// Notes from now on where a group is chosen.
    pub(super) fn watch_group(&mut self) {
        if let Some((slot, _)) = self.standard_field("mcast_grp") {
            self.b.watch(slot);
        }
    }

    /// Sends what has a group there, and goes on with what has none and with copies. Returns the port.
    pub(super) fn multicast(&mut self, group: Opnd, ingress: Span) -> Opnd {
        let chosen = self.b.watched().unwrap_or(ingress);
        self.multicast = Some(chosen);
        let what = "this program sends packets to a multicast group: a P4 VM will not load it";
        let d = Diagnostic::new(Code::Unused, chosen, what);
        self.sink.add(
            d.hint("`p4shield test` replicates packets; in front of a switch, leave that to the switch"),
        );
        if let Some(kept) = self.kept_so_far() {
            let what =
                "a multicast group chosen in a program that keeps something between packets before egress";
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
        let place = self.copied_to();
        self.b.write(port, place);
        self.b.jump(egress);
        self.b.switch_to(alone);
        let place = self.unicast();
        self.b.write(port, place);
        self.b.jump(egress);
        self.b.switch_to(egress);
        self.b.read(port)
    }

    /// Tells egress which copy it makes; returns its port.
    fn copied_to(&mut self) -> Opnd {
        let which = self.context(offset::OUTPUT_PORT, 4);
        let replica = self.b.bin(BinOp::Shr, which, Opnd::C(16), 32);
        self.set_standard("egress_rid", replica);
        self.set_standard("instance_type", Opnd::C(REPLICATION));
        self.b.truncate(which, 16)
    }

    /// Where the program, as far as it is lowered, does what a second run would do differently or once more.
    fn kept_so_far(&self) -> Option<Span> {
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
    let sends = |i: &Inst| matches!(i.op, Op::SetContext(offset::OUTPUT_ACTION, _, Opnd::C(a)) if a == u64::from(action::REPLICATE));
    let live = f.blocks.iter().filter(|b| b.term != Term::None);
    live.flat_map(|b| &b.insts).any(|v| sends(f.inst(*v)))
}
