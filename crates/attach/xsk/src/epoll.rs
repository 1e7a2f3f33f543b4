//! An application's `epoll_wait` on AF_XDP sockets.

use crate::socket::{self, XskSocket};
use crate::{drain_signal, next_libc, ready_event};

/// Moves rings and updates the sockets' events before a thread waits in an epoll (`sleeps`), and afterwards.
#[inline]
pub(crate) fn service_sockets(sleeps: bool) {
    if ready_event::any_in_epoll() {
        let errno = next_libc::errno();
        service(sleeps);
        next_libc::fail(errno);
    }
}

#[cold]
fn service(sleeps: bool) {
    let in_epoll = |s: &&XskSocket| s.event.is_in_epoll();
    for socket in socket::all().into_iter().filter(in_epoll) {
        if let Some(queue) = socket.queue() {
            socket.service(queue);
            socket.event.update_epoll();
            if sleeps && queue.is_unattended() {
                drain_signal::hand_over(queue);
            }
        }
    }
}
