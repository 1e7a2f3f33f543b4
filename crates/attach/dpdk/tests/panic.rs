//! Our own code panics in the middle of a burst, in a process that polls a port as a switch does.

mod common;
#[path = "common/pool.rs"]
mod pool;

use common::daemon::{Cloud, Does, Mood, text};
use common::frames::{self, frame};
use p4shield_config::FILE_VARIABLE;
use p4shield_dpdk::hooks::{rte_eth_dev_start, rte_eth_dev_stop};
use p4shield_testbed::wait_until;
use pool::{Pool, Port};
use std::sync::atomic::{AtomicU32, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Events of which each panics.
static TO_FAIL: AtomicU32 = AtomicU32::new(0);

/// The log writer fails when the mediator logs that a channel was detached: there is no
/// other way to have code of ours panic that does not.
struct Failing;

impl Subscriber for Failing {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("p4shield_mediator")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let left = TO_FAIL.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        assert!(left.is_err(), "the test has this event fail");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn after_a_panic_the_queue_is_mediated_and_no_buffer_lost() {
    let cloud = Cloud::new("1ms", "");
    let input = cloud.file("in.pcap");
    // Half of the packets are alice's, half bob's.
    let packets: Vec<_> = (0..64).map(|n| frame(n, 7, 1 + (n % 2) as u8, n as u16 / 2, 64)).collect();
    frames::write(&input, &packets);
    // SAFETY: nothing else reads the environment yet: neither DPDK nor the library has been started.
    unsafe { std::env::set_var(FILE_VARIABLE, cloud.config()) };
    tracing::subscriber::set_global_default(Failing).expect("it is the first");
    let daemon = cloud.daemon(|_| Does::Pass);
    let pool = Pool::new(8192, 2176);
    let port = Port::new("net_pcap0", &format!("rx_pcap={},infinite_rx=1", text(&input)), &pool);
    // SAFETY: the port is set up.
    assert_eq!(unsafe { rte_eth_dev_start(port.0) }, 0);
    let free = pool.free_count();
    let judged = |tenant: usize| daemon.p4vm(tenant).judged();
    let until = |what: &str, done: &dyn Fn() -> bool| {
        wait_until(what, 60, || {
            (0..64).for_each(|_| port.poll().into_iter().for_each(|packet| packet.free()));
            done()
        })
        .unwrap();
    };
    until("judged packets", &|| judged(0) > 100 && judged(1) > 100);
    for _ in 0..3 {
        TO_FAIL.store(1, Ordering::Release);
        daemon.p4vm(0).becomes(Mood::GarbageOnce);
        until("a panic", &|| TO_FAIL.load(Ordering::Acquire) == 0);
        let before = [judged(0), judged(1)];
        until("packets that are judged again", &|| {
            judged(0) > before[0] + 100 && judged(1) > before[1] + 100
        });
    }
    // SAFETY: no thread polls the port now.
    assert_eq!(unsafe { rte_eth_dev_stop(port.0) }, 0);
    assert_eq!(pool.free_count(), free, "every buffer is back");
}
