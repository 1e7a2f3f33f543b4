//! Calls of a tenant's own extern functions, which C defines.
//!
//! An extern function that neither the architecture nor `p4shield.p4` declares is called by its
//! name and linked later. It takes up to five arguments, in R1 to R5, and returns nothing or a
//! scalar of at most 64 bits in R0.
//!
//! - An argument of at most 64 bits that is `in` or has no direction is passed as a number:
//!   `bit<W>` zero-extended to 64 bits, `int<W>` sign-extended.
//! - Any other argument is passed as a pointer to the value in memory, in the layout of
//!   [`crate::ctypes`]. After the call, the memory of an `out` or `inout` argument holds its new
//!   value; the memory of an `out` argument is zero before the call.
//! - Only the lowest bits of a returned number are used, as many as its type has.
//!
//! The memory is the value of a map: a program's stack is too small for a struct of headers, and
//! the verifier knows the bounds of a map's value in any function.

use super::Lowering;
use super::lvalue::LValue;
use super::storage::{HeaderValue, Value};
use crate::ast::Direction;
use crate::ctypes::{CStruct, CType};
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{Call, CallArg, ExternFn};
use crate::ir::{MapId, Op, Opnd, Ty};
use crate::types::Type;

/// Maximum number of arguments: one register each.
pub(super) const MAX_ARGS: usize = 5;
/// Maximum total size in bytes of a call's arguments in memory.
const MAX_MEMORY: u32 = 4096;

/// An argument that is passed by pointer.
pub(super) struct InMemory {
    ty: CType,
    /// Offset in the map's value.
    pub(super) at: u32,
    /// The l-value that receives the new value.
    back: Option<LValue>,
    value: Option<Value>,
}

/// An evaluated argument.
pub(super) enum Argument {
    Number(Opnd),
    Memory(InMemory),
}

impl Lowering<'_> {
    pub(super) fn tenant_extern(&mut self, f: &ExternFn, c: &Call) -> Option<Value> {
        let Some((params, result)) = signature(f) else {
            let what = format!("the signature of extern `{}` is not supported yet", f.name);
            let hint = "your own externs take up to five integers, headers and structs of these, and \
                return an integer of at most 64 bits or void";
            let d = Diagnostic::new(Code::Unsupported, c.span, what).related(f.span, "declared here");
            self.sink.add(d.hint(hint));
            return None;
        };
        self.c.function(f, &params, result.as_ref());
        if f.placed && self.calls.wanted {
            return self.placed_call(f, c, params, result.is_some());
        }
        self.externs.insert(f.name.to_string());
        let mut at = 0;
        let mut arguments = Vec::new();
        for (arg, (ty, pointer)) in c.args.iter().zip(params) {
            arguments.push(self.argument(arg, ty, pointer, &mut at)?);
        }
        let memory = if at > 0 { Some(self.argument_memory(at)) } else { None };
        let mut words = Vec::new();
        for a in &arguments {
            words.push(match (a, memory) {
                (Argument::Memory(m), Some(base)) => {
                    self.put_argument(m, base);
                    self.address(base, m.at)
                }
                (Argument::Number(word), _) => *word,
                (Argument::Memory(_), None) => Opnd::C(0),
            });
        }
        let ty = if result.is_some() { Ty::Int(64) } else { Ty::None };
        let v = self.b.emit(Op::Extern { name: f.name.clone(), args: words }, ty);
        self.take_back(c, &arguments, memory);
        self.result(f, v)
    }

    /// Assigns the arguments in memory that the function may have changed, in the order of the source.
    pub(super) fn take_back(&mut self, c: &Call, arguments: &[Argument], memory: Option<Opnd>) {
        for a in c.args.as_written().filter_map(|(i, _)| arguments.get(i)) {
            if let (Argument::Memory(InMemory { ty, at, back: Some(lvalue), .. }), Some(base)) = (a, memory) {
                let value = self.get_c(ty, base, *at);
                self.assign(lvalue, &value);
            }
        }
    }

    /// Returns the result of a function.
    pub(super) fn result(&mut self, f: &ExternFn, v: Opnd) -> Option<Value> {
        let width = f.result.scalar_width()?;
        // Bits above the width of the result are not trusted.
        Some(Value::Scalar(vec![self.b.truncate(v, width as u8)], width))
    }

    /// Evaluates an argument; allocates memory at `end` for one that is passed by pointer.
    pub(super) fn argument(
        &mut self,
        arg: &CallArg,
        ty: CType,
        pointer: bool,
        end: &mut u32,
    ) -> Option<Argument> {
        let e = match arg {
            CallArg::In(e) | CallArg::Out(e) | CallArg::InOut(e) => e,
            CallArg::Object(_) | CallArg::Skip => return None,
        };
        if !pointer {
            let width = e.ty.scalar_width().unwrap_or(64);
            let signed = matches!(ty, CType::Integer { signed: true, .. });
            let word = self.word(e);
            return Some(Argument::Number(self.resize(&[word], width, 64, signed)[0]));
        }
        let value = (!matches!(arg, CallArg::Out(_))).then(|| self.value(e));
        let back = if matches!(arg, CallArg::In(_)) { None } else { Some(self.lvalue(e)?) };
        let at = end.next_multiple_of(8);
        *end = at + ty.size();
        if *end > MAX_MEMORY {
            self.unsupported(e.span, &format!("a call with arguments of more than {MAX_MEMORY} bytes"));
            return None;
        }
        Some(Argument::Memory(InMemory { ty, at, back, value }))
    }

    /// Returns the memory for arguments, at least this many bytes.
    fn argument_memory(&mut self, bytes: u32) -> Opnd {
        let map = self.argument_map(bytes.next_multiple_of(8));
        self.b.only_value(map, "arguments", self.refuse)
    }

    fn argument_map(&mut self, bytes: u32) -> MapId {
        let name = self.map_name(&[], "extern_arguments");
        self.b.value_of(&mut self.argument_map, &name, bytes)
    }

    fn address(&mut self, base: Opnd, at: u32) -> Opnd {
        if at == 0 { base } else { self.b.emit(Op::Offset(base, Opnd::C(at.into())), Ty::MapValue) }
    }

    pub(super) fn put_argument(&mut self, m: &InMemory, base: Opnd) {
        match &m.value {
            Some(v) => self.put_c(&m.ty, v, base, m.at),
            None => self.clear_c(&m.ty, base, m.at),
        }
    }

    pub(super) fn put_word(&mut self, base: Opnd, at: u32, bytes: u8, value: Opnd) {
        self.b.emit(Op::StoreMap { base, offset: at.cast_signed(), bytes, value }, Ty::None);
    }

    fn clear_c(&mut self, ty: &CType, base: Opnd, at: u32) {
        match ty {
            CType::Integer { bytes, .. } => self.put_word(base, at, *bytes, Opnd::C(0)),
            CType::Bytes { bytes, .. } => {
                (0..*bytes).for_each(|i| self.put_word(base, at + i, 1, Opnd::C(0)))
            }
            CType::Struct(s) => {
                s.fields.iter().for_each(|(_, offset, t)| self.clear_c(t, base, at + offset));
                s.valid.iter().for_each(|offset| self.put_word(base, at + offset, 1, Opnd::C(0)));
            }
        }
    }

    /// Writes a value in the layout of C.
    fn put_c(&mut self, ty: &CType, v: &Value, base: Opnd, at: u32) {
        match (ty, v) {
            (CType::Integer { bytes, width, signed }, Value::Scalar(limbs, _)) => {
                let value = self.resize(limbs, *width, u32::from(*bytes) * 8, *signed)[0];
                self.put_word(base, at, *bytes, value);
            }
            (CType::Bytes { bytes, width }, Value::Scalar(limbs, _)) => {
                let limbs = self.resize(limbs, *width, bytes * 8, false);
                let mut parts = Vec::new();
                self.key_parts(&limbs, at, *bytes, &mut parts);
                parts.into_iter().for_each(|(at, n, word)| self.put_word(base, at, n, word));
            }
            (CType::Struct(s), Value::Group(fields)) => self.put_fields(s, fields, Opnd::C(1), base, at),
            (CType::Struct(s), Value::Header(h)) => self.put_fields(s, &h.fields, h.valid, base, at),
            _ => {}
        }
    }

    fn put_fields(&mut self, s: &CStruct, fields: &[Value], valid: Opnd, base: Opnd, at: u32) {
        for ((_, offset, t), v) in s.fields.iter().zip(fields) {
            self.put_c(t, v, base, at + offset);
        }
        if let Some(offset) = s.valid {
            self.put_word(base, at + offset, 1, valid);
        }
    }

    /// Reads a value in the layout of C.
    fn get_c(&mut self, ty: &CType, base: Opnd, at: u32) -> Value {
        match ty {
            CType::Integer { bytes, width, .. } => {
                Value::Scalar(vec![self.get_word(base, at, *bytes, *width as u8)], *width)
            }
            CType::Bytes { bytes, width } => Value::Scalar(self.get_bytes(base, at, *bytes, *width), *width),
            CType::Struct(s) => {
                let fields = s.fields.iter().map(|(_, offset, t)| self.get_c(t, base, at + offset)).collect();
                let Some(valid) = s.valid else { return Value::Group(fields) };
                let valid = self.get_word(base, at + valid, 1, 1);
                Value::Header(Box::new(HeaderValue {
                    valid,
                    position: None,
                    fields,
                    padding: Vec::new(),
                    original: Vec::new(),
                }))
            }
        }
    }

    fn get_word(&mut self, base: Opnd, at: u32, bytes: u8, width: u8) -> Opnd {
        let v = self.b.emit(Op::LoadMap { base, offset: at.cast_signed(), bytes }, Ty::Int(bytes * 8));
        self.b.truncate(v, width)
    }

    /// Reads bytes in network byte order as limbs.
    fn get_bytes(&mut self, base: Opnd, at: u32, bytes: u32, width: u32) -> Vec<Opnd> {
        let mut limbs = Vec::new();
        for i in 0..bytes {
            let byte = self.get_word(base, at + i, 1, 8);
            limbs = self.concat(&limbs, 8 * i, &[byte], 8);
        }
        self.resize(&limbs, bytes * 8, width, false)
    }
}

/// The C signature: parameters, each with whether it is a pointer, and the result.
type CSignature = (Vec<(CType, bool)>, Option<CType>);

/// Returns the C signature of a function; `None` if it has none.
fn signature(f: &ExternFn) -> Option<CSignature> {
    let param = |p: &crate::hir::Param| {
        let ty = CType::of(&p.ty)?;
        let number =
            matches!(p.direction, Direction::In | Direction::None) && matches!(ty, CType::Integer { .. });
        Some((ty, !number))
    };
    let params: Vec<_> = f.params.iter().map(param).collect::<Option<_>>()?;
    let result = if f.result == Type::Void { None } else { Some(CType::of(&f.result)?) };
    let fits = params.len() <= MAX_ARGS && !matches!(result, Some(CType::Bytes { .. } | CType::Struct(_)));
    fits.then_some((params, result))
}
