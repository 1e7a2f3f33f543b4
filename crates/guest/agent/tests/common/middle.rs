//! A thread between client and VM that acts as wire, mediator and P4 VM, and attacks on request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use p4shield_abi::Direction;
use p4shield_abi::log_page::{DirectionTotals, LogRecord};
use p4shield_abi::log_page::{LOG_MAGIC, LOG_PAGE_SIZE, LOG_SLOT_STRIDE, LOG_SLOTS};
use p4shield_abi::sketch::Sketch;
use p4shield_channel::{PageWriter, SharedMemory};
use p4shield_seal::{Epoch, Identity, LogKey, LogSealer, Now, PacketDigest, TenantKey};

use super::packet::{PacketSocket, wait};
use super::world::{INTERVAL_MS, TENANT, VM, VM_ADDRESS};

/// The digest of the tenant's program.
pub(crate) const PROGRAM: [u8; 32] = [0xa; 32];

/// Treatment of the next packet of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The program does not judge it.
    Bypass,
    /// The program judges it, but it is not forwarded.
    Withhold,
    /// It is forwarded without a verdict, and the program judges the previous packet again.
    JudgePreviousAgain,
    /// The program judges it twice.
    JudgeTwice,
    /// One of its bytes changes after the program judges it (ingress) or before (egress).
    Corrupt,
}

/// Treatment of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogMode {
    #[default]
    Honest,
    /// No record is published.
    Stopped,
    /// The first record is published repeatedly.
    Replayed,
    /// A bit of each record is flipped.
    Forged,
}

#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) packets: [VecDeque<Order>; 2],
    pub(crate) log: LogMode,
    pub(crate) restart: bool,
    /// The page is re-created.
    pub(crate) page: bool,
    pub(crate) header_bytes: Option<u32>,
    /// The digest of the loaded program.
    pub(crate) program: Option<[u8; 32]>,
    /// The VM's interface was plugged anew.
    pub(crate) reopen: bool,
    /// Frames to the VM that no program judges.
    pub(crate) inject: usize,
    /// The P4 VM's key changes to this one after its next record.
    pub(crate) rotate: Option<[u8; 32]>,
}

pub(crate) struct Middle {
    pub(crate) orders: Arc<Mutex<Orders>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Middle {
    /// Starts the thread between two ports. The caller must be in their network namespace, which the thread
    /// inherits.
    pub(crate) fn start(vm_port: &str, client_port: &str, key: [u8; 32], page: &std::path::Path) -> Self {
        let orders = Arc::<Mutex<Orders>>::default();
        let stop = Arc::<AtomicBool>::default();
        let mut cloud = Cloud::new(vm_port, client_port, &TenantKey::from_bytes(key), page);
        let (o, s) = (orders.clone(), stop.clone());
        let run = move || {
            while !s.load(Ordering::Relaxed) {
                cloud.step(&mut o.lock().unwrap());
                wait([&cloud.vm, &cloud.client]);
            }
        };
        let thread = std::thread::Builder::new().name("middle".into()).spawn(run).unwrap();
        Self { orders, stop, thread: Some(thread) }
    }

    pub(crate) fn order(&self, direction: Direction, order: Order, times: usize) {
        let mut orders = self.orders.lock().unwrap();
        orders.packets[direction as usize].extend(std::iter::repeat_n(order, times));
    }

    /// Gives an order and waits until it is carried out.
    pub(crate) fn and_wait(&self, give: impl Fn(&mut Orders), is_done: impl Fn(&Orders) -> bool) {
        give(&mut self.orders.lock().unwrap());
        p4shield_testbed::wait_until("the order is carried out", 10, || {
            is_done(&self.orders.lock().unwrap())
        })
        .unwrap();
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            assert!(t.join().is_ok() || std::thread::panicking(), "the middle panicked");
        }
    }
}

struct Cloud {
    vm_port: String,
    vm: PacketSocket,
    client: PacketSocket,
    digest: PacketDigest,
    sealer: LogSealer,
    key: [u8; 32],
    path: std::path::PathBuf,
    page: PageWriter,
    record: LogRecord,
    first: Option<(u64, u64, Vec<u8>)>,
    next_record: Instant,
    previous: [Vec<u8>; 2],
}

fn sealer(key: &TenantKey) -> LogSealer {
    LogSealer::new(key, &Identity { tenant: TENANT, vm: VM }, Epoch::from_clock().unwrap())
}

fn make_page(path: &std::path::Path) -> PageWriter {
    let memory = SharedMemory::create_file(path, LOG_PAGE_SIZE, 0o600).unwrap();
    PageWriter::new(memory, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE).unwrap()
}

impl Cloud {
    fn new(vm_port: &str, client_port: &str, key: &TenantKey, page: &std::path::Path) -> Self {
        Self {
            vm_port: vm_port.to_owned(),
            vm: PacketSocket::open(vm_port).unwrap(),
            client: PacketSocket::open(client_port).unwrap(),
            digest: PacketDigest::for_vm(key, &Identity { tenant: TENANT, vm: VM }),
            sealer: sealer(key),
            key: *key.expose(),
            path: page.to_owned(),
            page: make_page(page),
            record: LogRecord { header_bytes: 128, programs: [PROGRAM, [0; 32]], ..LogRecord::default() },
            first: None,
            next_record: Instant::now(),
            previous: [vec![], vec![]],
        }
    }

    fn step(&mut self, orders: &mut Orders) {
        let mut buffer = vec![0; 65_536];
        while let Some(frame) = self.client.receive(&mut buffer) {
            let frame = frame.to_vec();
            if let Some(on) = self.mediate(Direction::Ingress, frame, orders) {
                // The test may be taking the interface down.
                let _ = self.vm.send(&on);
            }
        }
        while let Some(frame) = self.vm.receive(&mut buffer) {
            let frame = frame.to_vec();
            if let Some(on) = self.mediate(Direction::Egress, frame, orders) {
                let _ = self.client.send(&on);
            }
        }
        if std::mem::take(&mut orders.reopen) {
            self.vm = PacketSocket::open(&self.vm_port).unwrap();
        }
        for _ in 0..std::mem::take(&mut orders.inject) {
            let mut frame =
                vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17];
            frame.extend([0, 0, 10, 88, 0, 1]);
            frame.extend(VM_ADDRESS.octets());
            frame.resize(60, 0);
            self.vm.send(&frame).unwrap();
        }
        if std::mem::take(&mut orders.restart) {
            self.sealer = sealer(&TenantKey::from_bytes(self.key));
            self.record = LogRecord {
                header_bytes: self.record.header_bytes,
                programs: self.record.programs,
                ..LogRecord::default()
            };
        }
        if std::mem::take(&mut orders.page) {
            std::fs::remove_file(&self.path).unwrap();
            self.page = make_page(&self.path);
        }
        if let Some(digest) = orders.program.take() {
            self.record.programs[0] = digest;
        }
        if let Some(n) = orders.header_bytes.take() {
            self.record.header_bytes = n;
        }
        if Instant::now() >= self.next_record {
            self.next_record = Instant::now() + Duration::from_millis(INTERVAL_MS);
            self.publish(orders.log);
            if let Some(new) = orders.rotate.take() {
                self.key = new;
                let mut key = LogKey::new(&TenantKey::from_bytes(new), &Identity { tenant: TENANT, vm: VM });
                self.digest = key.digest().clone();
                self.sealer.rotate(&mut key);
            }
        }
    }

    /// Processes a frame and returns the frame to forward.
    fn mediate(&mut self, direction: Direction, mut frame: Vec<u8>, orders: &mut Orders) -> Option<Vec<u8>> {
        if !is_the_vms(direction, &frame) {
            return Some(frame);
        }
        let order = orders.packets[direction as usize].pop_front();
        match order {
            None | Some(Order::Withhold) => self.judge(direction, &frame),
            Some(Order::Bypass) => {}
            Some(Order::JudgeTwice) => {
                self.judge(direction, &frame);
                self.judge(direction, &frame);
            }
            Some(Order::JudgePreviousAgain) => {
                let again = self.previous[direction as usize].clone();
                self.judge(direction, &again);
            }
            Some(Order::Corrupt) => {
                let mut other = frame.clone();
                other[50] ^= 0x55;
                let judged = if direction == Direction::Egress { &other } else { &frame };
                self.judge(direction, judged);
                frame = other;
            }
        }
        self.previous[direction as usize].clone_from(&frame);
        (order != Some(Order::Withhold)).then_some(frame)
    }

    fn judge(&mut self, direction: Direction, frame: &[u8]) {
        let len = frame.len() as u32;
        let seen = frame.len().min(self.record.header_bytes as usize);
        let digest = self.digest.digest(&frame[..seen], len);
        self.record.sketches[direction as usize].add(Sketch::item(digest));
        let t: &mut DirectionTotals = &mut self.record.totals[direction as usize];
        t.judged += 1;
        t.passed += 1;
        t.judged_bytes += u64::from(len);
        t.passed_bytes += u64::from(len);
        t.judged_digest = t.judged_digest.wrapping_add(digest);
        t.passed_digest = t.passed_digest.wrapping_add(digest);
    }

    fn publish(&mut self, mode: LogMode) {
        self.record.published_ns = Now::read().real_ns;
        let sealed = self.sealer.seal(&self.record);
        let mut made = (sealed.epoch, sealed.counter, sealed.bytes.to_vec());
        let first = self.first.get_or_insert_with(|| made.clone());
        match mode {
            LogMode::Honest => {}
            LogMode::Stopped => return,
            LogMode::Replayed => made.clone_from(first),
            LogMode::Forged => made.2[100] ^= 1,
        }
        self.page.publish(made.0, made.1, &made.2).unwrap();
    }
}

/// Returns whether a mediator assigns the frame to the VM, by the address on the VM's side.
fn is_the_vms(direction: Direction, frame: &[u8]) -> bool {
    let at = if direction == Direction::Ingress { 30 } else { 26 };
    frame.get(12..14) == Some(&[8, 0]) && frame.get(at..at + 4) == Some(&VM_ADDRESS.octets())
}
