//! A switch that forks: the child lets go of every channel, and its parent is unharmed.
//!
//! Its own harness, so that there is no other test in the process that is forked.

#![allow(unsafe_code, reason = "fork")]
#![allow(clippy::print_stdout, reason = "this is its own harness")]

mod cloud;

use cloud::{Cloud, Switch, dropped, passed};
use p4shield_mediator::Reason;

fn main() {
    let cloud = Cloud::new();
    let daemon = cloud.daemon();
    let mut switch = Switch::new(&cloud, 1);
    switch.until_judged(0, 0);
    let judged = daemon.judged(0);
    // SAFETY: the child does what a forked switch might, takes no lock of another thread's and ends
    // without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let ok = switch.send(0, 0) == dropped(Reason::NoChannel) && switch.send(0, 1) == passed();
        // Nothing is said to the daemon, and nothing waited for.
        let port = switch.session.port_up(p4shield_attach::PortInfo::default());
        switch.session.port_down(port);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!(ok && port.0 == 0))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was forked above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's lanes still judge, or its session still speaks");
    assert_eq!(daemon.judged(0), judged, "the child used its parent's channel");
    assert_eq!(switch.send(0, 0), passed());
    switch.until_judged(0, 1);
    println!("test a_forked_child_has_no_lanes ... ok");
}
