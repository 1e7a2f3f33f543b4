//! Limits of what a port may send.

use std::num::NonZero;
use std::time::Instant;

use p4shield_nicswitch::Reason;

use crate::bed::*;

/// Frames that a port may send at once, whatever its rate.
const BURST: u64 = 64;

#[test]
fn a_port_sends_no_more_than_its_rate() {
    let Some(bed) = Bed::build() else { return };
    const RATE: u64 = 500;
    const SENT: u64 = 3000;
    let mut limited = ports();
    let a1 = limited.iter().position(|port| port.interface == "a1").unwrap();
    limited[a1].packet_rate = NonZero::new(RATE as u32);
    assert_eq!(bed.apply(&limited).unwrap().changed, ["a1"]);
    let [(_, of_a), (_, of_b)] = [allowed_to("ga"), allowed_to("gb")];
    let start = Instant::now();
    for _ in 0..SENT {
        bed.sockets["a1"].send(&of_a);
        bed.sockets["b1"].send(&of_b);
    }
    let taken = bed.wait_for("a1", SENT);
    let most = BURST + 1 + RATE * (start.elapsed().as_millis() as u64 + 1) / 1000;
    let [to_a, to_b] = ["ga", "gb"].map(|name| taken[name].delivered_packets);
    let dropped = taken["a1"].dropped(Reason::Rate);
    assert!((BURST..=most).contains(&to_a), "{to_a} of at most {most}");
    assert_eq!((to_a + dropped, to_b), (SENT, SENT), "another port has no limit");
    assert_eq!(taken["b1"].dropped(Reason::Rate), 0);
    // Without the limit, all pass again.
    bed.apply(&ports()).unwrap();
    for _ in 0..SENT {
        bed.sockets["a1"].send(&of_a);
    }
    assert_eq!(bed.wait_for("a1", 2 * SENT)["a1"].dropped(Reason::Rate), dropped);
}
