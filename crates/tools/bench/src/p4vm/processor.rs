//! The processor time of a process and of all that it has started.

use std::time::{Duration, Instant};

use anyhow::Context;

/// Returns the part of a core that a process and its descendants take in this time.
pub(super) fn share(pid: i32, time: Duration) -> anyhow::Result<f64> {
    let (begun, before) = (Instant::now(), seconds(pid)?);
    std::thread::sleep(time);
    Ok((seconds(pid)? - before) / begun.elapsed().as_secs_f64())
}

fn seconds(pid: i32) -> anyhow::Result<f64> {
    let mut ticks = 0.0;
    let mut family = vec![pid];
    while let Some(pid) = family.pop() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let stat = stat.with_context(|| format!("process {pid} of the P4 VM has ended"))?;
        ticks += ticks_of(&stat).with_context(|| format!("/proc/{pid}/stat has another form"))?;
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            // A thread that has ended has no child.
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
    }
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the time in user and kernel mode together, in clock ticks (proc_pid_stat(5)).
fn ticks_of(stat: &str) -> Option<f64> {
    // The name, in parentheses, may have spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map(|field| field.parse::<f64>().ok());
    Some(times.next()?? + times.next()??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_spins_takes_a_core() {
        // It ends what it has started, also if this test fails.
        let mut command = std::process::Command::new("timeout");
        let mut child = command.args(["2", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        let share = share(child.id().cast_signed(), Duration::from_millis(500));
        child.wait().unwrap();
        assert!(share.unwrap() > 0.05);
        assert_eq!(ticks_of("7 (a ) b) S 1 7 7 0 -1 1 2 3 4 5 30 12 0 0"), Some(42.0));
        assert_eq!(ticks_of("7 (a)"), None);
    }
}
