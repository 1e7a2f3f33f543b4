//! Selection of calls: keys on the stack, arguments, results.

use super::machine::{Arg, Base, CallTarget, MInst, Reg, Src};
use super::select::InstSelector;
use crate::ir::{KeyPart, Op, Opnd};
use p4shield_abi::helper;

impl InstSelector<'_> {
    /// Selects a call; the result goes to `dst`.
    pub(super) fn call(&mut self, op: &Op, dst: Option<Reg>) {
        let (target, args) = match op {
            Op::Lookup { map, key } => {
                let size = self.f.maps[map.0 as usize].definition.key_size;
                let start = self.on_stack(size, key);
                (CallTarget::Helper(helper::MAP_LOOKUP_ELEM), vec![Arg::Map(*map), Arg::Frame(start)])
            }
            Op::Helper { id, context, args } => {
                let first = context.then_some(Arg::Reg(self.context));
                (CallTarget::Helper(*id), self.args(first, args))
            }
            Op::Buffer { id, size, data, args } => {
                let start = self.on_stack(*size, data);
                let first = [Arg::Frame(start), Arg::Imm(u64::from(*size))];
                (CallTarget::Helper(*id), self.args(first, args))
            }
            Op::Extern { name, args } => (CallTarget::Extern(name.clone()), self.args([], args)),
            _ => return,
        };
        self.push(MInst::Call { target, args, dst });
    }

    /// Stores bytes in a stack buffer; returns its offset from the end of the frame. All calls
    /// share the buffer, because each reads it before the next one writes it.
    fn on_stack(&mut self, size: u32, parts: &[KeyPart]) -> i32 {
        let size = size.next_multiple_of(8);
        self.key_bytes = self.key_bytes.max(size);
        let start = -size.cast_signed();
        for (at, bytes, value) in parts {
            let src = self.key_source(*value, *bytes);
            let offset = start + at.cast_signed();
            self.push(MInst::Store { bytes: *bytes, base: Base::Frame, offset, src });
        }
        start
    }

    fn key_source(&mut self, o: Opnd, bytes: u8) -> Src {
        match o {
            Opnd::C(c) if bytes < 8 => Src::Imm((c as u32).cast_signed()),
            Opnd::C(c) if i32::try_from(c.cast_signed()).is_ok() => Src::Imm(c.cast_signed() as i32),
            _ => Src::Reg(self.reg(o)),
        }
    }

    fn args(&mut self, first: impl IntoIterator<Item = Arg>, others: &[Opnd]) -> Vec<Arg> {
        let others = others.iter().map(|o| match o {
            Opnd::C(c) => Arg::Imm(*c),
            Opnd::V(v) => Arg::Reg(self.reg_of(*v)),
        });
        first.into_iter().chain(others).collect()
    }
}
