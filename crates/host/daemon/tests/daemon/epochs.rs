//! The epochs of logs, as the auditor in the user VM sees them, across restarts of P4 VMs and daemons and
//! with the clock set back by an hour.

use crate::Test;
use crate::attachment::TestAttachment;
use crate::fixture::{Fixture, wait_for};
use p4shield_abi::log_page::{LOG_MAGIC, LOG_PAGE_SIZE, LOG_SLOT_STRIDE, LOG_SLOTS};
use p4shield_channel::{PageReader, SharedMemory};
use p4shield_daemon::Daemon;
use p4shield_daemon::config::Config;
use p4shield_seal::{Continuity, EpochFloor, Identity, LogOpener, LogRefusal, Now, TenantKey};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;

pub(crate) const TESTS: &[Test] = &[("epochs_never_decrease_whatever_the_clock_says", epochs_never_go_back)];

const BOB: usize = 1;
const HOUR: u64 = 3_600_000_000_000;

/// Reads the log page as the auditor does.
struct Reader {
    page: PageReader,
    opener: LogOpener,
    epoch: u64,
}

impl Reader {
    /// Creates bob's log page as a hypervisor does, so that it outlives daemons.
    fn new(fixture: &Fixture) -> Self {
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(fixture.at("db.log"))
            .unwrap();
        file.set_len(LOG_PAGE_SIZE as u64).unwrap();
        let memory = SharedMemory::from_page_fd(file.into(), LOG_PAGE_SIZE).unwrap();
        let page = PageReader::new(memory, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE).unwrap();
        let key = TenantKey::load(&fixture.at("bob.key")).unwrap();
        let opener = LogOpener::new(&key, &Identity { tenant: "bob", vm: "db" });
        Self { page, opener, epoch: 0 }
    }

    /// Waits for the first record of a new P4 VM. No record before it may be refused as old.
    fn next_start(&mut self) -> u64 {
        let before = self.epoch;
        wait_for("a record of a new P4 VM", || {
            let mut sealed = vec![0; self.page.room()];
            let Ok(Some(p)) = self.page.newest(&mut sealed) else { return false };
            match self.opener.open(p.epoch, p.counter, &sealed[..p.len]) {
                Ok(o)
                    if o.continuity == Continuity::First
                        || matches!(o.continuity, Continuity::Restart { .. }) =>
                {
                    self.epoch = o.epoch
                }
                Ok(_) | Err(LogRefusal::Unchanged) => {}
                Err(e) => panic!("a record of epoch {} after one of {}: {e}", p.epoch, self.epoch),
            }
            self.epoch > before
        });
        self.epoch
    }
}

fn start(config: &Config) -> Daemon {
    Daemon::start(
        config.clone(),
        TestAttachment::new(&p4shield_attach::mediator_config(config)),
        Path::new("/proc/self/exe"),
    )
    .unwrap()
}

fn epochs_never_go_back() {
    let fixture = Fixture::new("epochs");
    let config = fixture.config(&fixture.text("drop").replace("[daemon]", "[daemon]\nstate = \"state\""));
    // Earlier daemons ran while the clock was ahead.
    std::fs::create_dir_all(fixture.at("state/p4vm")).unwrap();
    let mut before = EpochFloor::new(Some(fixture.at("state/p4vm/bob.epoch")));
    while before.reserve().0 < Now::read().real_ns + HOUR {}
    let mut reader = Reader::new(&fixture);

    let daemon = start(&config);
    let first = reader.next_start();
    assert!(first > Now::read().real_ns + HOUR, "epoch {first} follows the clock");
    wait_for("its process", || daemon.status().tenants[BOB].pid.is_some());
    let pid = daemon.status().tenants[BOB].pid.and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    reader.next_start();
    drop(daemon);
    let _daemon = start(&config);
    reader.next_start();
    assert_eq!(reader.opener.totals().replayed, 0);
}
