//! Which losses of packets are recent. Counters of packets without a verdict only grow, so one loss at a
//! start would be a problem for ever.

use crate::status::problem::{Problem, ProblemKey, ProblemKind};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a loss is a problem.
pub(crate) const WINDOW: Duration = Duration::from_secs(300);

/// When the losses of each direction of a VM grew last.
#[derive(Default)]
pub(crate) struct RecentLosses(Mutex<HashMap<ProblemKey, Loss>>);

struct Loss {
    /// The problem's text, which contains the number of packets.
    text: String,
    at: Instant,
}

impl RecentLosses {
    /// Removes problems whose losses did not grow within [`WINDOW`]. Called with all present problems.
    pub(crate) fn retain(&self, now: Instant, problems: &mut Vec<Problem>) {
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = HashMap::new();
        problems.retain(|problem| {
            if !matches!(problem.kind, ProblemKind::DeadlineMissed | ProblemKind::QueueFull) {
                return true;
            }
            let known = before.remove(&problem.key()).filter(|loss| loss.text == problem.text);
            let loss = known.unwrap_or_else(|| Loss { text: problem.text.clone(), at: now });
            let is_recent = now.duration_since(loss.at) < WINDOW;
            present.insert(problem.key(), loss);
            is_recent
        });
        *before = present;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_a_problem_until_none_follows_in_time() {
        let losses = RecentLosses::default();
        let start = Instant::now();
        let shown = |after: Duration, packets: u32| {
            let late = format!("packets: {packets}");
            let mut problems = vec![
                Problem::of_tenant(ProblemKind::DeadlineMissed, "alice", late),
                Problem::of_tenant(ProblemKind::P4vmDown, "alice", "down".to_owned()),
            ];
            losses.retain(start + after, &mut problems);
            problems.len() == 2
        };
        let second = Duration::from_secs(1);
        assert!(shown(Duration::ZERO, 1) && shown(WINDOW - second, 1));
        assert!(!shown(WINDOW, 1) && !shown(WINDOW * 2, 1));
        assert!(shown(WINDOW * 2 + second, 2), "another packet");
        assert!(shown(WINDOW * 3, 2) && !shown(WINDOW * 3 + second, 2));
        assert!(shown(WINDOW * 4, 1), "counters of another switch");
    }
}
