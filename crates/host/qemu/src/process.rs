//! Processes with a time limit.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Waits until a process ends, and kills it at the time limit.
pub(crate) fn end(mut child: Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            Ok(status) => return status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_hangs_is_killed_at_the_limit() {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(end(child, Duration::from_millis(50)), None);
    }
}
