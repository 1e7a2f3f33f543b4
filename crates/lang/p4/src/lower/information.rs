//! In-VM information: the externs of `p4shield.p4` that read it.

use super::Lowering;
use crate::hir::{Call, CallArg};
use crate::ir::{BinOp, Cc, Opnd};
use p4shield_abi::{helper, info};

/// The information that an extern reads.
pub(super) enum InfoExtern {
    /// This field.
    Field(u32),
    /// A field of the interface that the argument selects.
    Interface(u32),
    AppValue,
    ByNumber,
    Status,
    Known,
}

/// Returns the information that an extern of this name reads, if any.
pub(super) fn information(name: &str) -> Option<InfoExtern> {
    use info::field as f;
    Some(match name {
        "get_tcp_mem" => InfoExtern::Field(f::TCP_MEM),
        "get_tcp_mem_used" => InfoExtern::Field(f::TCP_MEM_USED),
        "get_tcp_mem_threshold" => InfoExtern::Field(f::TCP_MEM_THRESHOLD),
        "get_tcp_sockets" => InfoExtern::Field(f::TCP_SOCKETS),
        "get_mem_used" => InfoExtern::Field(f::MEM_USED),
        "get_mem_total" => InfoExtern::Field(f::MEM_TOTAL),
        "get_mem_pressure" => InfoExtern::Field(f::MEM_PRESSURE_SOME),
        "get_mem_pressure_full" => InfoExtern::Field(f::MEM_PRESSURE_FULL),
        "get_cpu_pressure" => InfoExtern::Field(f::CPU_PRESSURE_SOME),
        "get_rx_bps" => InfoExtern::Interface(f::INTERFACE_RX_BPS),
        "get_tx_bps" => InfoExtern::Interface(f::INTERFACE_TX_BPS),
        "get_rx_pps" => InfoExtern::Interface(f::INTERFACE_RX_PPS),
        "get_tx_pps" => InfoExtern::Interface(f::INTERFACE_TX_PPS),
        "get_rx_utilisation" => InfoExtern::Interface(f::INTERFACE_RX_UTILISATION),
        "get_tx_utilisation" => InfoExtern::Interface(f::INTERFACE_TX_UTILISATION),
        "get_link_speed" => InfoExtern::Interface(f::INTERFACE_SPEED_BPS),
        "get_app_value" => InfoExtern::AppValue,
        "read_vm_info" => InfoExtern::ByNumber,
        "vm_info_status" => InfoExtern::Status,
        "vm_info_known" => InfoExtern::Known,
        _ => return None,
    })
}

impl Lowering<'_> {
    pub(super) fn read_information(&mut self, i: &InfoExtern, c: &Call) -> Option<Opnd> {
        let argument = match c.args.first() {
            Some(CallArg::In(e)) => Some(self.word(e)),
            _ => None,
        };
        let field = match (i, argument) {
            (InfoExtern::Status, _) => {
                self.checks_status = true;
                return Some(self.helper(helper::VM_INFO_STATUS, true, Vec::new(), 64));
            }
            (InfoExtern::Known, Some(field)) => {
                self.checks_status = true;
                return Some(self.helper(helper::VM_INFO_KNOWN, true, vec![field], 64));
            }
            (InfoExtern::Field(f), _) => Opnd::C(u64::from(*f)),
            (InfoExtern::ByNumber, Some(field)) => field,
            (InfoExtern::Interface(f), Some(index)) => {
                let stride = Opnd::C(u64::from(info::field::INTERFACE_STRIDE));
                let at = self.b.bin(BinOp::Mul, index, stride, 32);
                let first = Opnd::C(u64::from(info::field::INTERFACE_BASE + f));
                self.in_range(index, info::INTERFACES as u64, at, first)
            }
            (InfoExtern::AppValue, Some(slot)) => {
                let first = Opnd::C(u64::from(info::field::APP_BASE));
                self.in_range(slot, info::APP_VALUES as u64, slot, first)
            }
            _ => return None,
        };
        self.info_read.get_or_insert(c.span);
        Some(self.helper(helper::READ_VM_INFO, true, vec![field], 64))
    }

    /// Returns `first + at` if `index < limit`, otherwise an invalid field number, which is never known.
    fn in_range(&mut self, index: Opnd, limit: u64, at: Opnd, first: Opnd) -> Opnd {
        let field = self.b.bin(BinOp::Add, at, first, 32);
        let ok = self.b.cmp(Cc::Ult, index, Opnd::C(limit), 32);
        self.select(ok, field, Opnd::C(u64::from(u32::MAX)), 32)
    }
}
