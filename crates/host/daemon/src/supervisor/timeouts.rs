//! How long the supervisor waits for answers.

use std::time::Duration;

/// Longest time for an answer without verification; ample even on a busy machine.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time to link, verify and compile a program.
pub(super) const VERIFY_TIMEOUT: Duration = Duration::from_secs(30);
