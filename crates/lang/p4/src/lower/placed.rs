//! Calls of functions that run in a compartment ([`p4shield_abi::call`]), and the program that the
//! compartment runs.

use super::Lowering;
use super::storage::Value;
use super::tenant::Argument;
use crate::ctypes::CType;
use crate::hir::{Call, ExternFn};
use crate::ir::builder::Builder;
use crate::ir::{Block, Cc, Function, MapId, Op, Opnd, Ty};
use crate::lexer::Name;
use p4shield_abi::call::{CALLS_MAP, FUNCTION, LENGTH, MAX_MESSAGE, MEMORY, NUMBERS, RESULT};
use p4shield_abi::context::offset;
use p4shield_abi::object::need;

/// A function in the compartment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedFunction {
    pub(crate) name: Name,
    /// Of each argument: its offset in the message if it is in memory.
    memory: Vec<Option<u32>>,
    has_result: bool,
    /// Bytes of its messages.
    pub(crate) length: u32,
}

/// The calls of a program.
pub(super) struct Calls {
    /// True if marked functions run in a compartment.
    pub(super) wanted: bool,
    pub(super) map: Option<MapId>,
    pub(super) functions: Vec<PlacedFunction>,
}

impl Calls {
    pub(super) const fn new(wanted: bool) -> Self {
        Self { wanted, map: None, functions: Vec::new() }
    }
}

impl Lowering<'_> {
    /// Lowers a call of a marked function.
    pub(super) fn placed_call(
        &mut self,
        f: &ExternFn,
        c: &Call,
        params: Vec<(CType, bool)>,
        has_result: bool,
    ) -> Option<Value> {
        let mut end = MEMORY as u32;
        let mut arguments = Vec::new();
        for (arg, (ty, pointer)) in c.args.iter().zip(params) {
            arguments.push(self.argument(arg, ty, pointer, &mut end)?);
        }
        let memory = |a: &Argument| if let Argument::Memory(m) = a { Some(m.at) } else { None };
        let memory = arguments.iter().map(memory).collect();
        let length = end.next_multiple_of(8);
        if length as usize > MAX_MESSAGE {
            let what = format!("a call in a compartment with a message of more than {MAX_MESSAGE} bytes");
            self.unsupported(c.span, &what);
            return None;
        }
        let called = PlacedFunction { name: f.name.clone(), memory, has_result, length };
        let number = self.placed_number(called);
        if self.calls.map.is_none() {
            self.needs.push((need::CALLS, c.span));
        }
        let base = self.message(length);
        self.put_word(base, FUNCTION as u32, 4, Opnd::C(number as u64));
        self.put_word(base, LENGTH as u32, 4, Opnd::C(length.into()));
        self.put_word(base, RESULT as u32, 8, Opnd::C(0));
        for i in 0..super::tenant::MAX_ARGS {
            let word = match arguments.get(i) {
                Some(Argument::Number(word)) => *word,
                // Bytes of an earlier packet are none of the compartment's business.
                _ => Opnd::C(0),
            };
            self.put_word(base, (NUMBERS + 8 * i) as u32, 8, word);
        }
        self.clear_words(base, MEMORY as u32..length);
        for a in &arguments {
            if let Argument::Memory(m) = a {
                self.put_argument(m, base);
            }
        }
        self.b.emit(Op::Suspend, Ty::None);
        self.restart_events();
        let base = self.message(length);
        let v = self.b.emit(Op::LoadMap { base, offset: RESULT as i32, bytes: 8 }, Ty::Int(64));
        self.take_back(c, &arguments, Some(base));
        self.result(f, v)
    }

    fn placed_number(&mut self, called: PlacedFunction) -> usize {
        let functions = &mut self.calls.functions;
        let known = functions.iter().position(|f| *f == called);
        known.unwrap_or_else(|| {
            functions.push(called);
            functions.len() - 1
        })
    }

    /// Clears words of the message, as padding in C is not written.
    fn clear_words(&mut self, base: Opnd, bytes: std::ops::Range<u32>) {
        bytes.step_by(8).for_each(|at| self.put_word(base, at, 8, Opnd::C(0)));
    }

    /// Returns the address of a message of at least this many bytes.
    fn message(&mut self, length: u32) -> Opnd {
        let map = self.b.value_of(&mut self.calls.map, CALLS_MAP, length);
        self.b.only_value(map, "message", self.refuse)
    }
}

/// Generates the program of the compartment, which calls each function for its messages.
pub(crate) fn compartment(functions: &[PlacedFunction]) -> Function {
    let mut s = Stub { b: Builder::new(), refuse: Block(0), map: None };
    s.refuse = s.b.new_block("refuse");
    let data = s.within(LENGTH as u32 + 4);
    let which = s.b.emit(Op::Load { base: data, offset: FUNCTION as i32, bytes: 4 }, Ty::Int(32));
    for (i, f) in functions.iter().enumerate() {
        let [this, next] = [&*f.name, "next"].map(|label| s.b.new_block(label));
        let is = s.b.cmp(Cc::Eq, which, Opnd::C(i as u64), 32);
        s.b.branch(is, this, next);
        s.b.switch_to(this);
        s.call(f);
        s.b.switch_to(next);
    }
    s.b.jump(s.refuse);
    s.b.switch_to(s.refuse);
    s.b.ret(Opnd::C(0));
    s.b.into_function()
}

/// The program of the compartment while it is generated.
struct Stub {
    b: Builder,
    /// Target for messages that are too short.
    refuse: Block,
    /// The map with the memory of arguments.
    map: Option<MapId>,
}

impl Stub {
    /// Returns the start of the message, which has at least this many bytes from here on.
    fn within(&mut self, length: u32) -> Opnd {
        let [data, end] =
            [offset::DATA, offset::DATA_END].map(|at| self.b.emit(Op::Context(at, 8), Ty::Packet));
        let fits = self.b.emit(Op::InBounds { base: data, len: length, end }, Ty::Int(1));
        let go_on = self.b.new_block("message");
        self.b.branch(fits, go_on, self.refuse);
        self.b.switch_to(go_on);
        data
    }

    fn call(&mut self, f: &PlacedFunction) {
        let data = self.within(f.length);
        let words = (MEMORY as u32..f.length).step_by(8).map(u32::cast_signed);
        let words: Vec<i32> = words.collect();
        let memory = (!words.is_empty()).then(|| self.memory(f.length));
        for at in &words {
            let value = self.b.emit(Op::Load { base: data, offset: *at, bytes: 8 }, Ty::Int(64));
            if let Some(base) = memory {
                self.b.emit(Op::StoreMap { base, offset: *at, bytes: 8, value }, Ty::None);
            }
        }
        let mut args = Vec::new();
        for (i, in_memory) in f.memory.iter().enumerate() {
            args.push(match (in_memory, memory) {
                (Some(at), Some(base)) => {
                    self.b.emit(Op::Offset(base, Opnd::C(u64::from(*at))), Ty::MapValue)
                }
                _ => {
                    let offset = (NUMBERS + 8 * i) as i32;
                    self.b.emit(Op::Load { base: data, offset, bytes: 8 }, Ty::Int(64))
                }
            });
        }
        let ty = if f.has_result { Ty::Int(64) } else { Ty::None };
        let result = self.b.emit(Op::Extern { name: f.name.clone(), args }, ty);
        let data = self.within(f.length);
        // Also without a result: a message that comes back unchanged is no answer.
        let value = if f.has_result { result } else { Opnd::C(0) };
        self.b.emit(Op::Store { base: data, offset: RESULT as i32, bytes: 8, value }, Ty::None);
        for at in words {
            if let Some(base) = memory {
                let value = self.b.emit(Op::LoadMap { base, offset: at, bytes: 8 }, Ty::Int(64));
                self.b.emit(Op::Store { base: data, offset: at, bytes: 8, value }, Ty::None);
            }
        }
        self.b.ret(Opnd::C(1));
    }

    /// Returns the memory of arguments, which has the places that it has in messages.
    fn memory(&mut self, length: u32) -> Opnd {
        let map = self.b.value_of(&mut self.map, "extern_arguments", length);
        self.b.only_value(map, "memory", self.refuse)
    }
}
