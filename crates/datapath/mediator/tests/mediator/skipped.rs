//! Directions of VMs that bypass the P4 VM because they have no program.

use crate::common::*;
use p4shield_abi::channel::Request;
use p4shield_mediator::{AllowedSources, PortSpec, Reason, Stages, UnownedPolicy};

#[test]
fn directions_without_a_program_may_bypass_the_p4vm() {
    let mut config = tenants(2);
    config.tenants[0].vms[0].skipped = [false, true];
    config.tenants[1].vms[0].skipped = [true, false];
    let mut m = mediator(&config);
    let judged = Some((1, dropped(Reason::NoChannel)));
    let strict = PortSpec { unowned: UnownedPolicy::Drop, ..SHARED };
    for (source, destination, out) in [
        (1, 99, Some((1, PASS))),
        (99, 11, Some((1, PASS))),
        (1, 11, Some((1, PASS))),
        (99, 1, judged),
        (11, 99, judged),
        // The egress of one VM is skipped, the ingress of the other is not.
        (1, 12, judged),
        (2, 11, judged),
    ] {
        for port in [SHARED, strict] {
            assert_eq!(
                released(m.submit(0, &port, packet(1, source, destination))),
                out,
                "{source} {destination}"
            );
        }
    }
    for (stages, out) in [
        (Stages::EgressOnly(vm_ref(0, 0)), Some((1, PASS))),
        (Stages::IngressOnly(vm_ref(1, 0)), Some((1, PASS))),
        (Stages::IngressOnly(vm_ref(0, 0)), judged),
    ] {
        assert_eq!(released(m.submit(0, &port(stages), packet(1, 1, 1))), out, "{stages:?}");
    }
    // A false source address is dropped all the same.
    let foreign = PortSpec { source: AllowedSources::Foreign, ..SHARED };
    assert_eq!(released(m.submit(0, &foreign, packet(1, 1, 99))), Some((1, dropped(Reason::Spoofed))));
    // An egress packet does not move on to a skipped ingress, with its original or a rewritten destination.
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    for destination in [11, 99] {
        assert_eq!(released(m.submit(0, &SHARED, packet(5, 2, destination))), None);
        poll(&mut m, 0);
        let to_11 = |_: &Request, header: &[u8]| {
            let mut new = header.to_vec();
            new[33] = 11;
            Action::Rewrite(new, 0)
        };
        assert_eq!(a.answer(1, &mut { to_11 }), 1);
        assert_eq!(poll(&mut m, 0), [(5, PASS)]);
    }
    assert_eq!(m.counters().unowned.passed.get(), 8);
}
