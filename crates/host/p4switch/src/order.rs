//! Orders from the desk to the packet threads. What the threads share is the first one's to change.

use crate::change::{ChangeError, Changes, on};
use crate::noting::PacketSwitch;
use crate::recorder::RecordWork;
use p4shield_bpf::Program;
use p4shield_bpf::maps::{Map, MapCopy, MapError};
use p4shield_io::afxdp::InterfacePort;
use p4shield_io::controller::Sent;
use p4shield_mailbox::{Mailbox, Poster, mailbox};
use p4shield_switch::{
    BatchLog, Bell, CallSettings, Counts, PipelineHandle, PortCounts, PortError, QueueState, Traits, Twin,
    Way,
};
use p4shield_traffic::{Groups, Sessions};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most orders between two rounds.
const ORDERS: usize = 32;
/// Longest wait of the desk until the packet thread begins with an order.
const PATIENCE: Duration = Duration::from_secs(10);

const ENDS: &str = "the switch is about to end";
const SILENT: &str = "the packet thread did not begin with the command in time, so it has no effect; the \
                      machine may be overloaded";

/// An order.
#[derive(Debug)]
struct Order {
    work: Work,
    reply: SyncSender<Done>,
    claim: Arc<Claim>,
}

/// Decides whether an order is executed or given up: the side that claims it first. So the packet thread
/// never executes an order that the desk has reported as failed.
#[derive(Debug, Default)]
struct Claim(AtomicBool);

impl Claim {
    /// Returns true for the first caller.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// An executed order.
#[derive(Debug)]
pub(crate) struct Done {
    /// The work, with what was copied.
    pub(crate) work: Work,
    pub(crate) result: Result<(), ChangeError>,
}

/// The work of an order.
#[derive(Debug)]
pub(crate) enum Work {
    /// Applies changes in their order, until one fails.
    Change(Changes),
    /// Copies the next part of a map.
    Copy { map: String, copy: MapCopy },
    /// Copies the values of entries; zeros for those that are not there.
    Values(Values),
    /// Copies the handle of the pipeline.
    Handle(Option<PipelineHandle>),
    /// Exchanges the thread's pipeline and this one.
    Pipeline(Option<PipelineHandle>),
    /// Replaces the program, which is then the old one.
    Replace(Box<Replacement>),
    /// Copies the multicast groups.
    Groups(Groups),
    /// Copies the clone sessions.
    Sessions(Sessions),
    /// Copies the state of the queues.
    Queues(Vec<QueueState>),
    /// Exchanges the thread's log of batches and this one.
    Batches(Option<Box<BatchLog>>),
    /// Records packets.
    Record(RecordWork),
    /// Copies the counts of packets: those of each port by its number, and the others.
    Count(Vec<(u16, PortCounts)>, Counts),
    /// Changes a port.
    Port(Box<PortOrder>),
    /// Copies packets to the controller.
    Sent(Sent),
    /// Puts a packet of the controller at its port; true then if there was room.
    Put(Vec<u8>, bool),
    /// Has the thread receive no packet for so long, and packets that wait for answers go on before.
    Hold(Duration),
    /// Exchanges the thread's way to the compartment with the program's functions, and this one.
    Calls(Option<Box<CallSettings>>),
    /// Copies the numbers of the ports that have to be opened anew, with the reasons.
    Lost(Vec<(u16, &'static str)>),
}

/// Entries of a map, with memory for their values.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) map: String,
    pub(crate) keys: Vec<Vec<u8>>,
    /// The values, one behind the other, each of this size.
    pub(crate) values: Vec<u8>,
    pub(crate) size: usize,
}

/// A change of a port.
#[derive(Debug)]
pub(crate) struct PortOrder {
    /// The port's number.
    pub(crate) number: u16,
    pub(crate) change: PortChange,
    /// The thread's part of the port that comes, and then of the one that went.
    pub(crate) port: Option<InterfacePort>,
    /// The thread's way to the port that comes.
    pub(crate) way: Option<Way>,
}

/// The kinds of changes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortChange {
    Add,
    Delete,
    Exchange,
    SetUp(bool),
}

/// A program that replaces the one that runs.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) program: Option<Program>,
    pub(crate) traits: Traits,
    /// Maps whose entries it takes.
    pub(crate) maps: Vec<String>,
    /// The twin of the replaced program, which the desk drops.
    pub(crate) twin: Option<Twin>,
}

/// The desk's end.
#[derive(Debug)]
pub(crate) struct Orders {
    poster: Mutex<Poster<Order>>,
    bell: Arc<OwnedFd>,
}

/// The desk's ends for all packet threads.
#[derive(Debug)]
pub(crate) struct Threads(Vec<Orders>);

/// The packet thread's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    mailbox: Mailbox<Order>,
    bell: Arc<OwnedFd>,
}

/// Makes both ends for so many packet threads.
///
/// # Errors
/// The system has no descriptor left.
pub(crate) fn threads(count: usize) -> std::io::Result<(Threads, Vec<Inbox>)> {
    let ends = (0..count).map(|_| orders()).collect::<Result<Vec<_>, _>>()?;
    let (orders, inboxes) = ends.into_iter().unzip();
    Ok((Threads(orders), inboxes))
}

/// Makes both ends.
fn orders() -> std::io::Result<(Orders, Inbox)> {
    let (poster, mailbox) = mailbox();
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    Ok((Orders { poster: Mutex::new(poster), bell: Arc::clone(&bell) }, Inbox { mailbox, bell }))
}

impl Threads {
    /// Returns the number of packet threads.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Has the first packet thread do some work, and returns it done.
    ///
    /// # Errors
    /// The packet thread has ended, or does not answer: then the work is not done later either.
    pub(crate) fn execute(&self, work: Work) -> Result<Done, String> {
        self.execute_on(0, work)
    }

    /// Has the packet thread with this number do some work, and returns it done.
    ///
    /// # Errors
    /// As [`Threads::execute`].
    pub(crate) fn execute_on(&self, thread: usize, work: Work) -> Result<Done, String> {
        self.0[thread].execute_within(work, PATIENCE)
    }

    /// Has each packet thread do some work, one after the other, and returns what they have done.
    ///
    /// # Errors
    /// As [`Threads::execute`].
    pub(crate) fn execute_on_each(&self, work: impl Fn() -> Work) -> Result<Vec<Work>, String> {
        (0..self.count()).map(|thread| Ok(self.execute_on(thread, work())?.work)).collect()
    }
}

impl Orders {
    fn execute_within(&self, work: Work, patience: Duration) -> Result<Done, String> {
        let (reply, done) = sync_channel(1);
        let claim = Arc::new(Claim::default());
        let order = Order { work, reply, claim: Arc::clone(&claim) };
        let posted = self.poster.lock().unwrap_or_else(PoisonError::into_inner).post(order);
        if !posted {
            return Err(ENDS.to_owned());
        }
        // A full counter wakes the thread, too.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        match done.recv_timeout(patience) {
            Ok(done) => Ok(done),
            Err(RecvTimeoutError::Disconnected) => Err(ENDS.to_owned()),
            Err(RecvTimeoutError::Timeout) if claim.take() => Err(SILENT.to_owned()),
            // The packet thread is about to finish it.
            Err(RecvTimeoutError::Timeout) => done.recv().map_err(|_| ENDS.to_owned()),
        }
    }
}

impl Inbox {
    /// Returns the descriptor that is readable once an order may be there.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Returns what makes the descriptor readable, for other packet threads.
    pub(crate) fn rings(&self) -> Bell {
        let bell = Arc::clone(&self.bell);
        // A full counter wakes the thread, too.
        Arc::new(move || {
            let _ = rustix::io::write(&bell, &1_u64.to_ne_bytes());
        })
    }

    /// Makes the descriptor unreadable until the next order.
    pub(crate) fn silence(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Waits until an order may be there, at most this long.
    pub(crate) fn wait(&self, longest: Duration) {
        let mut bell = [PollFd::new(&self.bell, PollFlags::IN)];
        let timeout = Timespec::try_from(longest).ok();
        if poll(&mut bell, timeout.as_ref()).is_ok_and(|ready| ready > 0) {
            self.silence();
        }
    }

    /// Executes the orders that are there.
    pub(crate) fn serve(&mut self, switch: &mut PacketSwitch) {
        for _ in 0..ORDERS {
            let Some(Order { work, reply, .. }) = self.next_order() else { return };
            // The desk may have ended.
            let _ = reply.try_send(execute(work, switch));
        }
    }

    /// Returns the next order that the desk has not given up.
    fn next_order(&mut self) -> Option<Order> {
        std::iter::from_fn(|| self.mailbox.take()).find(|order| order.claim.take())
    }
}

fn execute(mut work: Work, switch: &mut PacketSwitch) -> Done {
    let result = match &mut work {
        Work::Change(changes) => changes.apply(switch),
        Work::Copy { map, copy } => {
            let copied = |m: &mut Map| if m.copy_part(copy) { Ok(()) } else { Err(MapError::NotFound) };
            on(&mut switch.pipeline(), map, copied)
        }
        Work::Values(Values { map, keys, values, size }) => on(&mut switch.pipeline(), map, |m| {
            for (key, value) in keys.iter().zip(values.chunks_exact_mut((*size).max(1))) {
                match m.copy_entry(key, value) {
                    Ok(()) | Err(MapError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }),
        Work::Handle(handle) => {
            *handle = Some(switch.pipeline_handle());
            Ok(())
        }
        Work::Pipeline(handle) => {
            *handle = handle.take().map(|handle| switch.exchange_pipeline(handle));
            Ok(())
        }
        Work::Replace(new) => {
            if let Some(program) = new.program.take() {
                let (old, twin) = switch.replace(program, new.traits, &new.maps);
                (new.program, new.twin) = (Some(old), twin);
            }
            Ok(())
        }
        Work::Groups(groups) => {
            groups.clone_from(&switch.pipeline().traffic.groups);
            Ok(())
        }
        Work::Sessions(sessions) => {
            sessions.clone_from(&switch.pipeline().traffic.sessions);
            Ok(())
        }
        Work::Queues(queues) => {
            switch.copy_queues(queues);
            Ok(())
        }
        Work::Batches(log) => {
            *log = switch.io().exchange_log(log.take());
            Ok(())
        }
        Work::Record(work) => {
            work.execute(switch);
            Ok(())
        }
        Work::Count(ports, counts) => {
            ports.extend(switch.port_counts());
            // Without those by place, which would be allocated here.
            *counts = Counts { ports: Vec::new(), ..*switch.counts() };
            Ok(())
        }
        Work::Port(order) => change_port(order, switch).map_err(ChangeError::Port),
        Work::Sent(sent) => {
            if let Some(controller) = switch.io().inner().controller() {
                controller.copy(sent);
            }
            Ok(())
        }
        Work::Put(packet, put) => {
            *put = switch.io().inner().controller().is_some_and(|c| c.put(packet));
            Ok(())
        }
        Work::Calls(settings) => {
            *settings = switch.set_calls(settings.take());
            Ok(())
        }
        Work::Hold(time) => {
            switch.hold(*time);
            Ok(())
        }
        Work::Lost(ports) => {
            ports.extend(switch.lost_ports());
            Ok(())
        }
    };
    Done { work, result }
}

fn change_port(order: &mut PortOrder, switch: &mut PacketSwitch) -> Result<(), PortError> {
    let PortOrder { number, change, port, way } = order;
    match *change {
        PortChange::Add => switch.add_port(*number, port),
        PortChange::Delete => switch.delete_port(*number, port),
        PortChange::Exchange => switch.exchange_port(*number, port),
        PortChange::SetUp(up) => switch.set_port_up(*number, up),
    }?;
    way.map_or(Ok(()), |way| switch.set_port_way(*number, way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_the_desk_gave_up_is_not_executed() {
        let (orders, mut inbox) = orders().unwrap();
        let refused = orders.execute_within(Work::Groups(Groups::default()), Duration::from_millis(1));
        assert_eq!(refused.unwrap_err(), SILENT);
        assert!(inbox.next_order().is_none(), "the order is still there");
    }

    #[test]
    fn an_order_that_was_begun_is_waited_for() {
        let (orders, mut inbox) = orders().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                let order = loop {
                    match inbox.next_order() {
                        Some(order) => break order,
                        None => std::thread::yield_now(),
                    }
                };
                std::thread::sleep(Duration::from_millis(50));
                order.reply.try_send(Done { work: order.work, result: Ok(()) }).unwrap();
            });
            // Longer than the thread needs to begin, shorter than it works.
            let done = loop {
                let work = Work::Groups(Groups::default());
                match orders.execute_within(work, Duration::from_millis(20)) {
                    Err(why) => assert_eq!(why, SILENT),
                    Ok(done) => break done,
                }
            };
            assert!(done.result.is_ok());
        });
    }
}
