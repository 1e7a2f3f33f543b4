//! The publisher from a P4 VM's point of view, and its control socket with honest and hostile clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use p4shield_abi::info::{InfoStatus, Snapshot, field};
use p4shield_abi::info_page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_agent::config::{InterfaceConfig, Threshold, VmConfig};
use p4shield_agent::control::{Answer, ClientError, Request, Status, send_request};
use p4shield_agent::{AgentConfig, AgentError, PageLocation, run_agent};
use p4shield_channel::{PageReader, SharedMemory};
use p4shield_seal::{AgeLimit, EpochError, Identity, InfoKey, InfoOpener, Now, TenantKey};
use p4shield_testbed::wait_until;

struct Running {
    config: AgentConfig,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<(), AgentError>>>,
    _dir: Option<tempfile::TempDir>,
}

fn config() -> (AgentConfig, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    TenantKey::generate(&at("key")).unwrap();
    let vm = VmConfig { tenant: "acme".into(), name: "web".into(), key: at("key") };
    let mut config = AgentConfig::new(vm, at("info.page"));
    config.epoch_file = at("epoch");
    config.socket = at("socket");
    config.threshold = Threshold::Bytes(1 << 20);
    config.interfaces = vec![InterfaceConfig { name: "lo".into(), speed_mbps: Some(1_000) }];
    config.names = [("load".to_owned(), 5)].into();
    (config, dir)
}

/// Returns the path of the info page, which is a file in these tests.
fn page(config: &AgentConfig) -> &std::path::Path {
    match &config.info_page {
        PageLocation::File(path) => path,
        other => panic!("{other}"),
    }
}

impl Running {
    fn start(config: AgentConfig, dir: Option<tempfile::TempDir>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let (c, s) = (config.clone(), stop.clone());
        let thread = Some(std::thread::spawn(move || run_agent(&c, &s)));
        let running = Self { config, stop, thread, _dir: dir };
        wait_until("the agent answers", 10, || running.ask(&Request::Status).is_ok()).unwrap();
        running
    }

    fn new() -> Self {
        let (config, dir) = config();
        Self::start(config, Some(dir))
    }

    fn ask(&self, request: &Request) -> Result<Answer, ClientError> {
        send_request(&self.config.socket, request)
    }

    fn status(&self) -> Status {
        match self.ask(&Request::Status).unwrap() {
            Answer::Status(s) => *s,
            other => panic!("{other:?}"),
        }
    }

    fn set(&self, key: &str, value: u64, for_ms: Option<u64>) -> Result<Answer, ClientError> {
        self.ask(&Request::Set { key: key.into(), value, for_ms })
    }

    fn p4_vm(&self) -> P4Vm {
        let memory = SharedMemory::open_file(page(&self.config), INFO_PAGE_SIZE).unwrap();
        let key = TenantKey::load(&self.config.vm.key).unwrap();
        let identity = Identity { tenant: "acme", vm: "web" };
        let page = PageReader::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE).unwrap();
        let buffer = vec![0; page.room()];
        // The agent may have no core for longer than information is fresh by default.
        let limit = AgeLimit { max_age: Duration::from_secs(5), skew: Duration::from_secs(5) };
        P4Vm { page, opener: InfoOpener::new(&key, &identity, limit), buffer }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            t.join().unwrap().unwrap();
        }
    }
}

#[test]
fn the_agent_follows_a_replaced_key_file() {
    let mut agent = Running::new();
    let mut p4_vm = agent.p4_vm();
    let path = &agent.config.vm.key;
    wait_until("the first snapshot", 10, || p4_vm.read().1 == InfoStatus::Known).unwrap();
    let old = agent.status().key;
    // A file that is refused changes nothing.
    let bad = path.with_extension("bad");
    std::fs::write(&bad, b"short").unwrap();
    std::fs::set_permissions(&bad, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&bad, path).unwrap();
    let published = agent.status().published;
    wait_until("more snapshots", 10, || agent.status().published > published + 10).unwrap();
    assert_eq!((p4_vm.read().1, agent.status().key), (InfoStatus::Known, old.clone()));
    // A P4 VM that has rotated accepts both keys, without a gap.
    let identity = Identity { tenant: "acme", vm: "web" };
    let new = TenantKey::random(path).unwrap();
    p4_vm.opener.rotate(&mut Some(InfoKey::new(&new, &identity)), u64::MAX);
    new.replace(path).unwrap();
    wait_until("the new key", 10, || {
        assert_eq!(p4_vm.read().1, InfoStatus::Known, "information is fresh all the time");
        p4_vm.opener.current_since().is_some()
    })
    .unwrap();
    let totals = p4_vm.opener.totals();
    assert_eq!((totals.forged, totals.replayed, totals.stale), (0, 0, 0));
    let status = agent.status();
    assert_eq!(status.key, new.id().to_string());
    assert_ne!(status.key, old);
    agent.end();
}

#[test]
fn the_agent_makes_the_folders_of_its_own_files() {
    let (mut config, dir) = config();
    config.epoch_file = dir.path().join("lib/p4shield/epoch");
    config.socket = dir.path().join("run/p4shield/socket");
    let mut running = Running::start(config, None);
    for folder in ["lib/p4shield", "run/p4shield"] {
        let mode = std::fs::metadata(dir.path().join(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
    running.end();
    let mut config = running.config.clone();
    config.socket = dir.path().join("key/socket");
    let why = run_agent(&config, &AtomicBool::new(true)).unwrap_err().to_string();
    assert!(why.starts_with("cannot create the folder ") && why.contains("--socket"), "{why}");
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

struct P4Vm {
    page: PageReader,
    opener: InfoOpener,
    buffer: Vec<u8>,
}

impl P4Vm {
    fn read(&mut self) -> (Snapshot, InfoStatus) {
        let now = Now::read();
        if let Ok(Some(p)) = self.page.newest(&mut self.buffer) {
            let _ = self.opener.open(p.epoch, p.counter, &self.buffer[..p.len], now);
        }
        let (snapshot, status) = self.opener.current(now);
        (snapshot.clone(), status)
    }
}

#[test]
fn a_p4_vm_reads_published_snapshots() {
    let mut agent = Running::new();
    let mut p4_vm = agent.p4_vm();
    wait_until("traffic rates are known", 10, || {
        p4_vm.read().0.is_known(field::INTERFACE_BASE + field::INTERFACE_RX_BPS)
    })
    .unwrap();
    let (s, status) = p4_vm.read();
    assert_eq!(status, InfoStatus::Known);
    assert_eq!(s.get(field::TCP_MEM_THRESHOLD), Some(1 << 20));
    assert!(s.is_known(field::TCP_MEM_USED) && s.is_known(field::TCP_MEM) && s.is_known(field::MEM_TOTAL));
    assert_eq!(s.get(field::INTERFACE_BASE + field::INTERFACE_SPEED_BPS), Some(1_000_000_000));
    let before = p4_vm.opener.totals().accepted;
    wait_until("more snapshots arrive", 10, || {
        p4_vm.read();
        p4_vm.opener.totals().accepted > before + 5
    })
    .unwrap();
    let totals = p4_vm.opener.totals();
    assert_eq!((totals.forged, totals.replayed), (0, 0));
    agent.end();
    wait_until("the information ages", 30, || p4_vm.read().1 == InfoStatus::Stale).unwrap();
    assert!(!p4_vm.read().0.is_known(field::TCP_MEM_USED), "old data is never known");
}

#[test]
fn tcp_memory_is_reported_in_bytes() {
    use std::net::{TcpListener, TcpStream};

    let agent = Running::new();
    let mut p4_vm = agent.p4_vm();
    let mut used = || {
        wait_until("a snapshot", 10, || p4_vm.read().0.is_known(field::TCP_MEM_USED)).unwrap();
        p4_vm.read().0.get(field::TCP_MEM_USED).unwrap()
    };
    let before = used();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    // The receiver does not read, so the buffers of both sockets fill.
    let mut sent = 0;
    while let Ok(n) = (&sender).write(&[0; 65_536]) {
        sent += n as u64;
    }
    assert!(sent > 100_000);
    // The value is in bytes, not pages: it includes at least half of the sent bytes.
    wait_until("the memory is reported", 10, || used() >= before + sent / 2).unwrap();
}

#[test]
fn applications_set_values_by_slot_and_by_name() {
    let agent = Running::new();
    let mut p4_vm = agent.p4_vm();
    agent.set("load", 77, None).unwrap();
    agent.set("63", u64::MAX, None).unwrap();
    agent.set("0", 1, Some(200)).unwrap();
    let app = |n| field::APP_BASE + n;
    wait_until("the values are published", 10, || {
        let (s, _) = p4_vm.read();
        s.get(app(5)) == Some(77) && s.get(app(63)) == Some(u64::MAX)
    })
    .unwrap();
    let Answer::Values(values) = agent.ask(&Request::List).unwrap() else { panic!() };
    assert!(values.iter().any(|v| v.slot == 5 && v.name.as_deref() == Some("load") && v.value == 77));
    wait_until("the value expires", 10, || {
        p4_vm.read().1 == InfoStatus::Known && !p4_vm.read().0.is_known(app(0))
    })
    .unwrap();
    agent.ask(&Request::Unset { key: "load".into() }).unwrap();
    wait_until("the value is unknown again", 10, || !p4_vm.read().0.is_known(app(5))).unwrap();
    assert!(matches!(agent.set("64", 1, None), Err(ClientError::Refused(why)) if why.contains("64")));
    assert!(agent.set("unnamed", 1, None).is_err());
}

#[test]
fn restarts_increase_the_epoch() {
    let (config, dir) = config();
    let mut first = Running::start(config.clone(), Some(dir));
    let mut p4_vm = first.p4_vm();
    wait_until("a snapshot", 10, || p4_vm.read().1 == InfoStatus::Known).unwrap();
    let epoch = first.status().epoch;
    first.end();
    let second = Running::start(config, None);
    assert!(second.status().epoch > epoch);
    let accepted = p4_vm.opener.totals().accepted;
    wait_until("snapshots of the new epoch", 10, || {
        p4_vm.read();
        p4_vm.opener.totals().accepted > accepted + 3
    })
    .unwrap();
    assert_eq!(p4_vm.opener.totals().replayed, 0);
}

#[test]
fn a_second_agent_is_refused() {
    let agent = Running::new();
    let stop = AtomicBool::new(true);
    let second = run_agent(&agent.config, &stop);
    assert!(matches!(second, Err(AgentError::Epoch(EpochError::InUse(_)))), "{second:?}");
    let mut elsewhere = agent.config.clone();
    elsewhere.epoch_file.set_extension("other");
    let third = run_agent(&elsewhere, &stop);
    assert!(matches!(third, Err(AgentError::AlreadyRunning(_))), "{third:?}");
    assert!(agent.status().published > 0, "the first agent still publishes");
}

#[test]
fn the_socket_of_a_killed_agent_is_replaced() {
    let (config, dir) = config();
    drop(std::os::unix::net::UnixListener::bind(&config.socket).unwrap());
    assert!(config.socket.exists());
    let agent = Running::start(config, Some(dir));
    assert!(agent.status().epoch > 0);
}

/// The agent publishes in spite of garbage, endless lines, silent clients and clients that do not read.
#[test]
fn hostile_clients_do_not_stop_publication() {
    let agent = Running::new();
    let connect = || UnixStream::connect(&agent.config.socket).unwrap();
    let _silent: Vec<_> = (0..8).map(|_| connect()).collect();
    let mut garbage = connect();
    garbage.write_all(b"\xff\x00{]\n\n{\"do\":\"list\"}\n").unwrap();
    let mut lines = BufReader::new(garbage).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("{\"error\":"));
    assert!(lines.next().unwrap().unwrap().starts_with("{\"error\":"));
    assert_eq!(lines.next().unwrap().unwrap(), "{\"ok\":{\"values\":[]}}");
    let mut endless = connect();
    let _ = endless.write_all(&vec![b'x'; 1 << 20]);
    let mut last = String::new();
    let _ = endless.read_to_string(&mut last);
    assert!(last.is_empty() || last.starts_with("{\"error\":"), "the agent closes the connection: {last}");
    // A client that sends requests without end and reads no reply.
    let mut deaf = connect();
    deaf.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..10_000 {
        if deaf.write_all(b"{\"do\":\"status\"}\n").is_err() {
            break;
        }
    }
    let before = agent.status().published;
    wait_until("the agent still publishes", 10, || agent.status().published > before + 5).unwrap();
}

/// The cloud owns the page. Damage to it is counted, and publication resumes with an intact page.
#[test]
fn a_damaged_page_is_counted() {
    use p4shield_channel::Memory;

    let agent = Running::new();
    let memory = SharedMemory::open_file(page(&agent.config), INFO_PAGE_SIZE).unwrap();
    memory.copy_in(0, &[0; 64]);
    wait_until("failures are counted", 10, || agent.status().failed > 3).unwrap();
    assert!(agent.status().published > 0);
}

/// A restarted host daemon removes its pages and creates new ones.
#[test]
fn a_recreated_info_page_is_reopened() {
    let agent = Running::new();
    let mut p4_vm = agent.p4_vm();
    wait_until("a snapshot", 10, || p4_vm.read().1 == InfoStatus::Known).unwrap();
    std::fs::remove_file(page(&agent.config)).unwrap();
    drop(SharedMemory::create_file(page(&agent.config), INFO_PAGE_SIZE, 0o600).unwrap());
    let mut p4_vm = agent.p4_vm();
    wait_until("a snapshot on the new page", 10, || p4_vm.read().1 == InfoStatus::Known).unwrap();
}

#[test]
fn invalid_configurations_are_named() {
    let (good, _dir) = config();
    let run = |change: fn(&mut AgentConfig)| {
        let mut c = good.clone();
        change(&mut c);
        run_agent(&c, &AtomicBool::new(true)).unwrap_err().to_string()
    };
    assert!(run(|c| c.interval_ms = 0).contains("interval_ms is 0"));
    assert!(run(|c| c.threshold = Threshold::Fraction(1.5)).contains("1.5"));
    assert!(run(|c| c.names = [("x".to_owned(), 64)].into()).contains("64"));
    assert!(run(|c| c.names = [("7".to_owned(), 1)].into()).contains('7'));
    assert!(run(|c| c.vm.key = "/no/such/key".into()).contains("key file"));
    assert!(
        run(|c| c.info_page = PageLocation::File("/no/such/dir/page".into())).contains("/no/such/dir/page")
    );
}
