//! Extern functions and objects: those of the architecture, in-VM information, and the tenant's own C.
//!
//! # A tenant's own extern
//!
//! Any extern function that neither the architecture nor `p4shield.p4` declares is called by its name and linked
//! later. Its parameters are `in` (or without direction) and, like its result, integers, bool or enums of at most 64
//! bits. The first five and only arguments come in R1 to R5, zero-extended to 64 bits; the result is in R0, of which
//! the lowest bits are taken. In C: `unsigned long long name(unsigned long long a, ...)`.

use super::storage::Value;
use super::{BoundObject, Lower};
use crate::ast::Direction;
use crate::constant::small;
use crate::hir::{Call, CallArg, ExternFn, InstId, Object};
use crate::ir::{BinOp, Map, MapId, Op, Opnd, Ty};
use crate::lexer::Name;
use crate::types::Type;
use p4shield_abi::context::offset;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};
use p4shield_abi::{helper, info};
use std::rc::Rc;

/// The most arguments of a tenant's extern: one register each.
const MAX_ARGS: usize = 5;
/// The most elements of a register or counter.
const MAX_ELEMENTS: u32 = 1 << 24;

/// What an information extern reads.
enum Info {
    /// This field.
    Field(u32),
    /// Of the interface in the argument.
    Interface(u32),
    AppValue,
    ByNumber,
    Status,
    Known,
}

fn information(name: &str) -> Option<Info> {
    use info::field as f;
    Some(match name {
        "get_tcp_mem" => Info::Field(f::TCP_MEM),
        "get_tcp_mem_used" => Info::Field(f::TCP_MEM_USED),
        "get_tcp_mem_threshold" => Info::Field(f::TCP_MEM_THRESHOLD),
        "get_tcp_sockets" => Info::Field(f::TCP_SOCKETS),
        "get_mem_used" => Info::Field(f::MEM_USED),
        "get_mem_total" => Info::Field(f::MEM_TOTAL),
        "get_mem_pressure" => Info::Field(f::MEM_PRESSURE_SOME),
        "get_mem_pressure_full" => Info::Field(f::MEM_PRESSURE_FULL),
        "get_cpu_pressure" => Info::Field(f::CPU_PRESSURE_SOME),
        "get_rx_bps" => Info::Interface(f::INTERFACE_RX_BPS),
        "get_tx_bps" => Info::Interface(f::INTERFACE_TX_BPS),
        "get_rx_pps" => Info::Interface(f::INTERFACE_RX_PPS),
        "get_tx_pps" => Info::Interface(f::INTERFACE_TX_PPS),
        "get_rx_utilisation" => Info::Interface(f::INTERFACE_RX_UTILISATION),
        "get_tx_utilisation" => Info::Interface(f::INTERFACE_TX_UTILISATION),
        "get_link_speed" => Info::Interface(f::INTERFACE_SPEED_BPS),
        "get_app_value" => Info::AppValue,
        "read_vm_info" => Info::ByNumber,
        "vm_info_status" => Info::Status,
        "vm_info_known" => Info::Known,
        _ => return None,
    })
}

pub(super) fn packet_length(l: &mut Lower<'_>) -> Value {
    Value::Scalar(vec![l.context(offset::PACKET_LENGTH, 4)], 32)
}

impl Lower<'_> {
    pub(super) fn extern_call(&mut self, f: &ExternFn, c: &Call) -> Option<Value> {
        let width = f.result.scalar_width().unwrap_or(0);
        if let Some(i) = information(&f.name) {
            let v = self.read_information(&i, c)?;
            return Some(self.sized(v, 64, width));
        }
        match (&*f.name, c.args.as_slice()) {
            ("mark_to_drop", []) => self.b.write(self.packet.verdict, Opnd::C(0)),
            ("mark_to_pass", []) => self.b.write(self.packet.verdict, Opnd::C(1)),
            ("verify", [CallArg::In(check), _]) => {
                let ok = self.word(check);
                self.continue_if(ok);
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
            ("hash", [CallArg::Out(result), CallArg::In(_), CallArg::In(data)]) => {
                if let Some(place) = self.place(result) {
                    self.hash(&place, data);
                }
            }
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

    fn read_information(&mut self, i: &Info, c: &Call) -> Option<Opnd> {
        let argument = match c.args.first() {
            Some(CallArg::In(e)) => Some(self.word(e)),
            _ => None,
        };
        let field = match (i, argument) {
            (Info::Status, _) => {
                self.asks_status = true;
                return Some(self.helper(helper::VM_INFO_STATUS, true, Vec::new(), 64));
            }
            (Info::Known, Some(field)) => {
                self.asks_status = true;
                return Some(self.helper(helper::VM_INFO_KNOWN, true, vec![field], 64));
            }
            (Info::Field(f), _) => Opnd::C(u64::from(*f)),
            (Info::ByNumber, Some(field)) => field,
            (Info::Interface(f), Some(index)) => {
                let stride = Opnd::C(u64::from(info::field::INTERFACE_STRIDE));
                let at = self.b.bin(BinOp::Mul, index, stride, 32);
                let first = Opnd::C(u64::from(info::field::INTERFACE_BASE + f));
                self.in_range(index, info::INTERFACES as u64, at, first)
            }
            (Info::AppValue, Some(slot)) => {
                let first = Opnd::C(u64::from(info::field::APP_BASE));
                self.in_range(slot, info::APP_VALUES as u64, slot, first)
            }
            _ => return None,
        };
        self.info_read.get_or_insert(c.span);
        Some(self.helper(helper::READ_VM_INFO, true, vec![field], 64))
    }

    /// `first + at` if `index < limit`, else a number of no field, which is never known.
    fn in_range(&mut self, index: Opnd, limit: u64, at: Opnd, first: Opnd) -> Opnd {
        let field = self.b.bin(BinOp::Add, at, first, 32);
        let ok = self.b.cmp(crate::ir::Cc::Ult, index, Opnd::C(limit), 32);
        self.select(ok, field, Opnd::C(u64::from(u32::MAX)), 32)
    }

    /// RFC 1624: the complement of the sum of the old checksum's complement, the old value's and the new value.
    fn checksum(&mut self, sum: Opnd, old: Opnd, new: Opnd) -> Opnd {
        let invert = |l: &mut Self, v| l.b.bin(BinOp::Xor, v, Opnd::C(0xffff), 16);
        let halves = |l: &mut Self, v: Opnd| {
            let high = l.b.bin(BinOp::Shr, v, Opnd::C(16), 32);
            (l.b.truncate(v, 16), high)
        };
        let mut total = invert(self, sum);
        let (old_low, old_high) = halves(self, old);
        let (new_low, new_high) = halves(self, new);
        let wide = self.b.f.bits(old) > 16 || self.b.f.bits(new) > 16;
        let mut parts = vec![invert(self, old_low), new_low];
        if wide {
            parts.extend([invert(self, old_high), new_high]);
        }
        for p in parts {
            total = self.b.bin(BinOp::Add, total, p, 32);
        }
        for _ in 0..2 {
            let (low, high) = halves(self, total);
            total = self.b.bin(BinOp::Add, low, high, 32);
        }
        let total = self.b.truncate(total, 16);
        invert(self, total)
    }

    fn tenant_extern(&mut self, f: &ExternFn, c: &Call) -> Option<Value> {
        let fits = |t: &Type| t.scalar_width().is_some_and(|w| (1..=64).contains(&w));
        let params =
            f.params.iter().all(|p| matches!(p.direction, Direction::In | Direction::None) && fits(&p.ty));
        if !params || f.params.len() > MAX_ARGS || !(fits(&f.result) || f.result == Type::Void) {
            let what = format!("the signature of extern `{}`", f.name);
            self.sink.add(
                crate::diagnostics::Diagnostic::new(crate::diagnostics::Code::Unsupported, c.span, format!("{what}: not supported yet"))
                    .related(f.span, "declared here")
                    .hint("your own externs take up to five `in` integers of at most 64 bits and return one or void"),
            );
            return None;
        }
        let mut args = Vec::new();
        for a in &c.args {
            let CallArg::In(e) = a else { return None };
            args.push(self.word(e));
        }
        self.externs.insert(f.name.to_string());
        let width = f.result.scalar_width().unwrap_or(64);
        let v = self.b.emit(Op::Extern { name: f.name.clone(), args }, Ty::Int(64));
        // What a tenant's function leaves above its result's width is not ours to trust.
        let v = self.b.truncate(v, width as u8);
        (f.result != Type::Void).then(|| Value::Scalar(vec![v], width))
    }

    /// A method of an extern object.
    pub(super) fn method(
        &mut self,
        object: Object,
        of: &str,
        f: &ExternFn,
        c: &Call,
        ty: Option<&Type>,
    ) -> Option<Value> {
        let bound = self.object(object);
        match (of, bound, c.args.as_slice()) {
            ("packet_in", Some(BoundObject::PacketIn), _) => self.packet_in(&f.name, c, ty),
            ("packet_out", Some(BoundObject::PacketOut), [CallArg::In(e)]) => {
                self.emit_header(e);
                None
            }
            (
                "Register" | "Counter",
                Some(BoundObject::Instance(id, path)),
                [CallArg::In(index), rest @ ..],
            ) => {
                let (map, width) = self.array_map(id, &path, of)?;
                let index = self.word(index);
                let value = if let [CallArg::In(v)] = rest { Some(self.word(v)) } else { None };
                self.array_access(map, width, &f.name, index, value)
            }
            _ => {
                self.unsupported(c.span, &format!("{of}.{}", f.name));
                None
            }
        }
    }

    /// The array behind a register or counter, and the width of its elements.
    fn array_map(&mut self, id: InstId, path: &Rc<[Name]>, of: &str) -> Option<(MapId, u32)> {
        let inst = self.hir.instances[id.0 as usize].clone();
        let Type::Extern(e) = &inst.ty else { return None };
        let element = if of == "Counter" { Type::Bit(64) } else { e.args.first()?.clone() };
        let Some(width) = element.scalar_width().filter(|w| (1..=64).contains(w)) else {
            self.unsupported(inst.span, &format!("a register of {element}"));
            return None;
        };
        if let Some(m) = self.maps_by_path.get(&(id, path.clone())) {
            return Some((*m, width));
        }
        let size = inst.args.first().and_then(|a| self.ctor_number(a)).as_ref().and_then(small);
        let Some(size) = size.filter(|s| (1..=MAX_ELEMENTS).contains(s)) else {
            let hint = format!("sizes are from 1 to {MAX_ELEMENTS}");
            self.error(crate::diagnostics::Code::BadInstance, inst.span, "this is not a size", hint);
            return None;
        };
        let value_size = width.div_ceil(8).next_power_of_two();
        let definition =
            MapDefinition { map_type: TYPE_ARRAY, key_size: 4, value_size, max_entries: size, flags: 0 };
        let name = self.map_name(path, &inst.name);
        let map = self.add_map(Map { name, definition, entries: Vec::new() });
        self.maps_by_path.insert((id, path.clone()), map);
        Some((map, width))
    }

    /// Reads, writes or adds to an element; one that does not exist reads as 0 and swallows writes.
    fn array_access(
        &mut self,
        map: MapId,
        width: u32,
        method: &str,
        index: Opnd,
        value: Option<Opnd>,
    ) -> Option<Value> {
        // An index of more than 32 bits must not wrap around into the array.
        let index = if self.b.f.bits(index) > 32 {
            let ok = self.b.cmp(crate::ir::Cc::Ule, index, Opnd::C(u64::from(u32::MAX)), 64);
            self.select(ok, index, Opnd::C(u64::from(u32::MAX)), 64)
        } else {
            index
        };
        let bytes = width.div_ceil(8).next_power_of_two() as u8;
        let base = self.b.lookup(map, vec![(0, 4, index)]);
        let found = self.b.cmp(crate::ir::Cc::Ne, base, Opnd::C(0), 64);
        let (yes, end) = (self.b.new_block("element"), self.b.new_block("no element"));
        let result = self.b.slot(Ty::Int(width as u8));
        self.b.write(result, Opnd::C(0));
        self.b.branch(found, yes, end);
        self.b.switch_to(yes);
        let load = Op::LoadMap { base, offset: 0, bytes };
        match method {
            "write" => {
                let value = value?;
                self.b.emit(Op::StoreMap { base, offset: 0, bytes, value }, Ty::None);
            }
            "read" => {
                let v = self.b.emit(load, Ty::Int(bytes * 8));
                let v = self.b.truncate(v, width as u8);
                self.b.write(result, v);
            }
            _ => {
                let old = self.b.emit(load, Ty::Int(bytes * 8));
                let value = self.b.bin(BinOp::Add, old, value.unwrap_or(Opnd::C(1)), 64);
                self.b.emit(Op::StoreMap { base, offset: 0, bytes, value }, Ty::None);
            }
        }
        self.b.jump(end);
        self.b.switch_to(end);
        (method == "read").then(|| Value::Scalar(vec![self.b.read(result)], width))
    }
}
