//! VMs about which nobody is asked in a direction.

mod common;
use common::*;
use p4shield_abi::channel::Request;
use p4shield_mediator::{AllowedSources, Disposition, PortSpec, Reason, Stages, UnownedPolicy};

const PASS: Disposition = Disposition::Pass;
const fn dropped(reason: Reason) -> Disposition {
    Disposition::Drop(reason)
}

#[test]
fn directions_without_a_program_may_bypass_the_p4vm() {
    let mut config = tenants(2);
    config.tenants[0].vms[0].skipped = [false, true];
    config.tenants[1].vms[0].skipped = [true, false];
    let mut m = mediator(&config);
    let unasked = Some((1, dropped(Reason::NoChannel)));
    let strict = PortSpec { unowned: UnownedPolicy::Drop, ..SHARED };
    for (source, destination, out) in [
        (1, 99, Some((1, PASS))),
        (99, 11, Some((1, PASS))),
        (1, 11, Some((1, PASS))),
        (99, 1, unasked),
        (11, 99, unasked),
        // The egress of one VM is skipped, the ingress of the other is not.
        (1, 12, unasked),
        (2, 11, unasked),
    ] {
        for port in [SHARED, strict] {
            assert_eq!(of(m.submit(0, &port, packet(1, source, destination))), out, "{source} {destination}");
        }
    }
    for (stages, out) in [
        (Stages::EgressOnly(vm_ref(0, 0)), Some((1, PASS))),
        (Stages::IngressOnly(vm_ref(1, 0)), Some((1, PASS))),
        (Stages::IngressOnly(vm_ref(0, 0)), unasked),
    ] {
        assert_eq!(of(m.submit(0, &port(stages), packet(1, 1, 1))), out, "{stages:?}");
    }
    // A false source is none of those that nobody is asked about.
    let foreign = PortSpec { source: AllowedSources::Foreign, ..SHARED };
    assert_eq!(of(m.submit(0, &foreign, packet(1, 1, 99))), Some((1, dropped(Reason::Spoofed))));
    // An egress does not lead on to an ingress that is skipped, nor does one that made the packet another's.
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    for destination in [11, 99] {
        assert_eq!(of(m.submit(0, &SHARED, packet(5, 2, destination))), None);
        poll(&mut m, 0);
        let to_11 = |_: &Request, header: &[u8]| {
            let mut new = header.to_vec();
            new[33] = 11;
            Does::HeaderRewrite(new, 0)
        };
        assert_eq!(a.judge(1, &mut { to_11 }), 1);
        assert_eq!(poll(&mut m, 0), [(5, PASS)]);
    }
    assert_eq!(m.counters().unowned.passed.get(), 8);
}
