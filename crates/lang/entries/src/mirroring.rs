//! Clone sessions as in the reference switch's command line, where they are called mirroring sessions.

use p4shield_tables::write::{CloneSession, Write};

/// The reason why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as: {0}; sessions are 0 to 32767, ports and groups at most 65535")]
pub struct MirroringError(&'static str);

const ADD: &str = "mirroring_add SESSION PORT";
const ADD_GROUP: &str = "mirroring_add_mc SESSION GROUP";
const DELETE: &str = "mirroring_delete SESSION";

/// Returns the write of a command that changes a session; `None` for any other command.
///
/// # Errors
/// [`MirroringError`].
pub fn write(command: &str, numbers: &[u64]) -> Option<Result<Write, MirroringError>> {
    let usage = match command {
        "mirroring_add" => ADD,
        "mirroring_add_mc" => ADD_GROUP,
        "mirroring_delete" => DELETE,
        _ => return None,
    };
    Some(read(command, numbers).ok_or(MirroringError(usage)))
}

fn read(command: &str, numbers: &[u64]) -> Option<Write> {
    let small = |n: u64| u16::try_from(n).ok();
    let (session, target) = match (command, numbers) {
        ("mirroring_delete", [session]) => (*session, None),
        ("mirroring_add" | "mirroring_add_mc", [session, target]) => (*session, Some(small(*target)?)),
        _ => return None,
    };
    let session = small(session).filter(|n| *n < 1 << 15)?;
    Some(match (command, target) {
        ("mirroring_add_mc", group) => Write::SetSession(CloneSession { session, port: None, group }),
        (_, None) => Write::DeleteSession { session },
        (_, port) => Write::SetSession(CloneSession { session, port, group: None }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_set_and_delete_sessions() {
        let session = |session, port, group| Write::SetSession(CloneSession { session, port, group });
        assert_eq!(write("mirroring_add", &[5, 4]), Some(Ok(session(5, Some(4), None))));
        assert_eq!(write("mirroring_add_mc", &[5, 9]), Some(Ok(session(5, None, Some(9)))));
        assert_eq!(write("mirroring_delete", &[5]), Some(Ok(Write::DeleteSession { session: 5 })));
        assert_eq!(write("mc_mgrp_create", &[5]), None);
    }

    #[test]
    fn wrong_sessions_are_refused_with_their_usage() {
        for (command, numbers, usage) in [
            ("mirroring_add", &[5][..], ADD),
            ("mirroring_add", &[1 << 15, 4], ADD),
            ("mirroring_add_mc", &[5, 1 << 16], ADD_GROUP),
            ("mirroring_delete", &[], DELETE),
        ] {
            assert_eq!(write(command, numbers), Some(Err(MirroringError(usage))), "{command} {numbers:?}");
        }
    }
}
