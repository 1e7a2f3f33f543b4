//! Extern functions and objects of the architecture, and in-VM information. [`super::tenant`] calls
//! the tenant's own.

use super::information::information;
use super::storage::Value;
use super::{BoundObject, Lowering};
use crate::hir::{Call, CallArg, ExternFn, Object};
use crate::ir::{Op, Opnd, Ty};
use crate::types::Type;
use p4shield_abi::context::offset;
use p4shield_abi::helper;
use p4shield_tables::model::Architecture;

pub(super) fn packet_length(l: &mut Lowering<'_>) -> Value {
    Value::Scalar(vec![l.context(offset::PACKET_LENGTH, 4)], 32)
}

impl Lowering<'_> {
    pub(super) fn extern_call(&mut self, f: &ExternFn, c: &Call) -> Option<Value> {
        let width = f.result.scalar_width().unwrap_or(0);
        if let Some(i) = information(&f.name) {
            let v = self.read_information(&i, c)?;
            return Some(self.sized(v, 64, width));
        }
        match (&*f.name, &*c.args) {
            ("mark_to_drop", []) => self.mark_to_drop(),
            ("mark_to_drop", [CallArg::InOut(metadata)]) => self.mark_for_dropping(metadata),
            ("mark_to_pass", []) => self.b.write(self.packet.verdict, Opnd::C(1)),
            ("verify", [CallArg::In(check), CallArg::In(error)]) => {
                let (ok, error) = (self.word(check), self.word(error));
                self.continue_or(ok, error);
            }
            ("static_assert", _) => return Some(Value::Scalar(vec![Opnd::C(1)], 1)),
            ("ubpf_time_get_ns", []) => {
                let v = self.helper(helper::KTIME_GET_NS, false, Vec::new(), 64);
                return Some(self.sized(v, 64, width));
            }
            ("get_direction", []) => return Some(self.context_value(offset::DIRECTION, 4, width)),
            ("get_vm", []) => return Some(self.context_value(offset::VM, 4, width)),
            ("get_timestamp_ns", []) => return Some(self.context_value(offset::TIMESTAMP_NS, 8, width)),
            ("truncate", [CallArg::In(len)]) => {
                let len = self.word(len);
                self.truncates = true;
                self.b.write(self.packet.truncate_to, len);
            }
            ("csum_replace2" | "csum_replace4", [CallArg::In(sum), CallArg::In(old), CallArg::In(new)]) => {
                let (sum, old, new) = (self.word(sum), self.word(old), self.word(new));
                return Some(Value::Scalar(vec![self.checksum(sum, old, new)], 16));
            }
            ("hash", [CallArg::Out(result), algo, CallArg::In(data)]) => {
                if let (Some(algorithm), Some(lvalue)) = (self.algorithm(algo), self.lvalue(result)) {
                    self.hash(&lvalue, algorithm, data);
                }
            }
            _ if self.architecture == Architecture::V1model => return self.v1model_extern(f, c),
            _ => return self.tenant_extern(f, c),
        }
        None
    }

    fn v1model_extern(&mut self, f: &ExternFn, c: &Call) -> Option<Value> {
        match (&*f.name, &*c.args) {
            (
                "hash",
                [CallArg::Out(result), algo, CallArg::In(base), CallArg::In(data), CallArg::In(max)],
            ) => {
                if let Some(algorithm) = self.algorithm(algo) {
                    self.hash_in_range(result, algorithm, [base, data, max]);
                }
            }
            ("verify_checksum", args) => self.checksum_call(args, false, false),
            ("update_checksum", args) => self.checksum_call(args, true, false),
            ("verify_checksum_with_payload", args) => self.checksum_call(args, false, true),
            ("update_checksum_with_payload", args) => self.checksum_call(args, true, true),
            ("random", [CallArg::Out(result), CallArg::In(low), CallArg::In(high)]) => {
                self.random(result, low, high);
            }
            ("assert", [CallArg::In(check)]) => self.assert(check),
            ("assume" | "log_msg", _) => {}
            ("digest", [_, CallArg::In(data)]) => self.digest(data),
            (name, _) if self.request_call(name, c) => self.request_spans.push((f.name.clone(), c.span)),
            _ => return self.tenant_extern(f, c),
        }
        None
    }

    fn sized(&mut self, v: Opnd, from: u32, to: u32) -> Value {
        Value::Scalar(self.resize(&[v], from, to, false), to)
    }

    fn context_value(&mut self, at: i16, bytes: u8, width: u32) -> Value {
        let v = self.context(at, bytes);
        self.sized(v, u32::from(bytes) * 8, width)
    }

    pub(super) fn helper(&mut self, id: u32, context: bool, args: Vec<Opnd>, width: u8) -> Opnd {
        self.b.emit(Op::Helper { id, context, args }, Ty::Int(width))
    }

    /// Lowers a method of an extern object.
    pub(super) fn method(
        &mut self,
        object: Object,
        of: &str,
        f: &ExternFn,
        c: &Call,
        ty: Option<&Type>,
    ) -> Option<Value> {
        let bound = self.object(object);
        match (of, bound, &*c.args) {
            ("packet_in", Some(BoundObject::PacketIn), _) => self.packet_in(&f.name, c, ty),
            ("packet_out", Some(BoundObject::PacketOut), [CallArg::In(e)]) => {
                self.emit_header(e);
                None
            }
            (_, Some(BoundObject::Instance(id, path)), _) if super::objects::is_object(of) => {
                self.object_method(id, &path, of, f, c)
            }
            _ => {
                self.unsupported(c.span, &format!("{of}.{}", f.name));
                None
            }
        }
    }
}
