//! Translation of calls: functions of the program, and helpers. Small helpers are inlined.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{ExtFuncData, ExternalName, InstBuilder as _, UserExternalName, Value};
use p4shield_abi::info::FIELDS;

use super::facts::Fact;
use super::function::{Translator, constant, signature};
use crate::env::{FRAME_SIZE, offset, stop};
use crate::helpers::{self, Inline};
use crate::info::VmInfo;
use crate::insn::Reg;

const ARGUMENTS: [u8; 5] = [1, 2, 3, 4, 5];

impl Translator<'_, '_> {
    fn arguments(&mut self) -> Vec<Value> {
        let registers = ARGUMENTS.iter().filter_map(|&n| Reg::new(n));
        let mut values = vec![self.env];
        for r in registers {
            let v = self.get(r);
            values.push(v);
        }
        values
    }

    /// Translates a call of a helper. Loading has refused programs with unknown helpers.
    pub(super) fn call_helper(&mut self, number: u32) {
        let helper = helpers::find(self.program.helpers, number).expect("loading checks every helper");
        let inlined = match helper.inline {
            Inline::No => None,
            Inline::MapLookup => self.array_lookup(),
            Inline::ReadInfo => self.read_info(),
            Inline::InfoStatus => Some(self.info_status()),
            Inline::InfoKnown => self.info_known(),
        };
        let result = inlined.unwrap_or_else(|| {
            let signature = signature(self.isa);
            let signature = self.b.import_signature(signature);
            let address = helper.function as usize as i64;
            let address = self.b.ins().iconst(I64, address);
            let arguments = self.arguments();
            if helper.charges {
                self.publish_budget();
            }
            let call = self.b.ins().call_indirect(signature, address, &arguments);
            let result = self.b.inst_results(call)[0];
            if helper.charges {
                self.return_if_stopped();
                self.reload_budget();
            }
            result
        });
        self.set(Reg::R0, result);
        self.clear_arguments();
    }

    /// Inlines a lookup in an array that is known at compile time: the value's address, or 0 if the index
    /// is out of range.
    fn array_lookup(&mut self) -> Option<Value> {
        let Fact::Map(index) = self.facts.get(Reg::R1) else { return None };
        let map = self.program.maps?.by_index(index as usize)?;
        let (base, stride) = map.as_array()?;
        let entries = i64::from(map.definition().max_entries);
        let key = self.get(Reg::new(2)?);
        let flags = cranelift_codegen::ir::MemFlagsData::new().with_notrap();
        let index = self.b.ins().load(I32, flags, key, 0);
        let index = self.b.ins().uextend(I64, index);
        let entries = self.b.ins().iconst(I64, entries);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, entries);
        let stride = self.b.ins().iconst(I64, stride as i64);
        let at = self.b.ins().imul(index, stride);
        let base = self.b.ins().iconst(I64, base as i64);
        let address = self.b.ins().iadd(base, at);
        let null = self.b.ins().iconst(I64, 0);
        Some(self.b.ins().select(inside, address, null))
    }

    /// Returns the field in R2, if it is known at compile time and exists.
    fn known_field(&self) -> Option<usize> {
        match self.facts.get(Reg::new(2)?) {
            // Helpers take the field as 32 bits.
            Fact::Const(field) => Some(field as u32 as usize).filter(|&field| field < FIELDS),
            _ => None,
        }
    }

    fn info(&mut self) -> Value {
        self.b.ins().load(I64, constant(), self.env, offset::INFO)
    }

    /// Returns the bit of `field` in the bitmap of known fields, as the lowest bit of a byte.
    fn known_bit(&mut self, info: Value, field: usize) -> Value {
        let at = std::mem::offset_of!(VmInfo, known) + field / 8;
        let byte = self.b.ins().load(I8, constant(), info, at as i32);
        let shift = self.b.ins().iconst(I8, (field % 8) as i64);
        let bit = self.b.ins().ushr(byte, shift);
        let one = self.b.ins().iconst(I8, 1);
        self.b.ins().band(bit, one)
    }

    fn read_info(&mut self) -> Option<Value> {
        let field = self.known_field()?;
        let info = self.info();
        let known = self.known_bit(info, field);
        let one = self.b.ins().iconst(I8, 1);
        let unknown = self.b.ins().bxor(known, one);
        let before = self.load_env(I8, offset::UNKNOWN);
        let any = self.b.ins().bor(before, unknown);
        self.store_env(any, offset::UNKNOWN);
        let at = std::mem::offset_of!(VmInfo, values) + field * 8;
        Some(self.b.ins().load(I64, constant(), info, at as i32))
    }

    fn decided(&mut self) {
        let one = self.b.ins().iconst(I8, 1);
        self.store_env(one, offset::DECIDED);
    }

    fn info_status(&mut self) -> Value {
        self.decided();
        let info = self.info();
        self.b.ins().load(I64, constant(), info, std::mem::offset_of!(VmInfo, status) as i32)
    }

    fn info_known(&mut self) -> Option<Value> {
        let field = self.known_field()?;
        self.decided();
        let info = self.info();
        let known = self.known_bit(info, field);
        Some(self.b.ins().uextend(I64, known))
    }

    /// Translates a call of the function that starts at `slot`: charges its length and moves one frame down.
    pub(super) fn call_local(&mut self, slot: usize) {
        let Some(index) = self.program.checked.function_at(slot) else { return };
        let frame = self.frame.expect("functions that call others know their frame");
        let size = self.b.ins().iconst(I64, FRAME_SIZE as i64);
        let below = self.b.ins().isub(frame, size);
        let bottom = self.b.ins().iconst(I64, i64::from(offset::STACK));
        let bottom = self.b.ins().iadd(self.env, bottom);
        let full = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, below, bottom);
        self.stop_if(full, stop::CALL_DEPTH);
        self.charge(self.program.checked.functions[index].len() as u64);
        self.publish();
        self.store_env(below, offset::FRAME);
        let callee = self.callee(index);
        let arguments = self.arguments();
        let call = self.b.ins().call(callee, &arguments);
        let result = self.b.inst_results(call)[0];
        self.return_if_stopped();
        self.store_env(frame, offset::FRAME);
        self.reload_budget();
        self.set(Reg::R0, result);
        self.clear_arguments();
    }

    fn callee(&mut self, index: usize) -> cranelift_codegen::ir::FuncRef {
        if let Some(&callee) = self.callees.get(&index) {
            return callee;
        }
        let signature = signature(self.isa);
        let signature = self.b.import_signature(signature);
        let name = UserExternalName { namespace: 0, index: index as u32 };
        let name = ExternalName::user(self.b.func.declare_imported_user_function(name));
        let data = ExtFuncData { name, signature, colocated: true, patchable: false };
        let callee = self.b.import_function(data);
        self.callees.insert(index, callee);
        callee
    }

    /// Reads the budget after a call that may have charged it.
    fn reload_budget(&mut self) {
        if let Some(budget) = self.budget {
            let left = self.load_env(I64, offset::BUDGET);
            self.b.def_var(budget, left);
        }
    }

    /// Returns immediately if the called function or helper stopped the run.
    fn return_if_stopped(&mut self) {
        let stopped = self.load_env(I8, offset::STOPPED);
        let out = self.b.create_block();
        let go_on = self.b.create_block();
        self.b.set_cold_block(out);
        self.b.ins().brif(stopped, out, &[], go_on, &[]);
        self.b.switch_to_block(out);
        let zero = self.b.ins().iconst(I64, 0);
        self.b.ins().return_(&[zero]);
        self.b.switch_to_block(go_on);
    }
}
