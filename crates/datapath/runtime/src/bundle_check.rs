//! Health checks: what the programs of a bundle decide, before they replace others.

use crate::program::LoadedProgram;
use p4shield_abi::channel::DEFAULT_HEADROOM;
use p4shield_abi::info::{InfoStatus, Snapshot};
use p4shield_abi::{Direction, Verdict};
use p4shield_bpf::{Meta, Packet, VmInfo};
use p4shield_bundle::HealthCheck;

/// Runs the checks of a direction in their order on a program, whose state they change. The program sees the
/// first `header_bytes` of each packet, as it may in a switch.
///
/// # Errors
/// The first check that fails; the text is for the tenant.
pub(crate) fn run<'c>(
    program: &mut LoadedProgram,
    (vm, direction): (u16, Direction),
    header_bytes: u32,
    checks: impl Iterator<Item = &'c HealthCheck>,
) -> Result<(), String> {
    let mut packet = Packet::new(DEFAULT_HEADROOM as usize, header_bytes as usize);
    let meta = Meta { direction: direction as u32, vm: u32::from(vm), ..Meta::default() };
    for check in checks.filter(|check| check.direction == direction as u8) {
        packet.reset(&check.packet, u32::try_from(check.packet.len()).unwrap_or(u32::MAX));
        let result = program.run(&mut packet, &meta, &information(check));
        let failed = |what: &str| {
            let expected = if check.passes { "pass" } else { "drop" };
            let (name, direction) = (&check.name, direction.name());
            Err(format!(
                "health check {name:?} ({direction}) fails: the program {what}, and has to {expected} the \
                 packet; no program was replaced"
            ))
        };
        match result.stopped {
            Some(stop) => return failed(&format!("was stopped ({stop})")),
            None if result.verdict == check.verdict() => {}
            None if result.undecided => {
                return failed("drops the packet, because it did not ask whether its information is known");
            }
            None if result.verdict == Verdict::Pass => return failed("passes the packet"),
            None => return failed("drops the packet"),
        }
    }
    Ok(())
}

fn information(check: &HealthCheck) -> VmInfo {
    let Some(fields) = &check.information else { return VmInfo::unknown(InfoStatus::Missing) };
    let mut snapshot = Snapshot::default();
    for (field, value) in fields {
        snapshot.set(*field, *value);
    }
    VmInfo::new(&snapshot, InfoStatus::Known)
}
