//! In-VM information: the externs of `p4shield.p4` that read it.

use super::Lower;
use crate::hir::{Call, CallArg};
use crate::ir::{BinOp, Cc, Opnd};
use p4shield_abi::{helper, info};

/// The information that an extern reads.
pub(super) enum Info {
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
pub(super) fn information(name: &str) -> Option<Info> {
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

impl Lower<'_> {
    pub(super) fn read_information(&mut self, i: &Info, c: &Call) -> Option<Opnd> {
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

    /// Returns `first + at` if `index < limit`, otherwise an invalid field number, which is
    /// never known.
    fn in_range(&mut self, index: Opnd, limit: u64, at: Opnd, first: Opnd) -> Opnd {
        let field = self.b.bin(BinOp::Add, at, first, 32);
        let ok = self.b.cmp(Cc::Ult, index, Opnd::C(limit), 32);
        self.select(ok, field, Opnd::C(u64::from(u32::MAX)), 32)
    }
}
