//! Process 1 of a PID namespace inherits the processes whose parent has ended.

use rustix::process::{Pid, WaitId, WaitIdOptions, getpgid, waitid};
use std::io;
use std::time::Duration;

/// Pause while a child waits for the thread that started it, or there is no child.
const PAUSE: Duration = Duration::from_millis(50);

/// Reaps the processes that this process inherited, without end: each would take a place of the limit of
/// processes. Children in its own process group are left to the threads that started them.
pub fn reap_orphans() -> ! {
    loop {
        let Ok(ended) = ended_child() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        if getpgid(Some(ended)).is_ok_and(|group| getpgid(None) == Ok(group)) {
            std::thread::sleep(PAUSE);
        } else {
            let _ = waitid(WaitId::Pid(ended), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }
}

/// Waits until a child has ended, which stays to be reaped.
fn ended_child() -> io::Result<Pid> {
    // SAFETY: all bytes zero are a valid `siginfo_t`, which is plain data.
    let mut ended: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `ended` is valid for the call, which writes nothing else.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut ended, libc::WEXITED | libc::WNOWAIT) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a successful waitid() fills this member.
    let pid = unsafe { ended.si_pid() };
    Pid::from_raw(pid).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_ended_child_is_found_and_stays_to_be_reaped() {
        let mut child = Command::new("false").spawn().unwrap();
        assert_eq!(ended_child().unwrap(), Pid::from_child(&child));
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}
