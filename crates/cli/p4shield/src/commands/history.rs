//! `p4shield program history`: who loaded which program.

use std::path::Path;

use p4shield_console::{Exit, Refused, output};
use p4shield_daemon::api::{self, Answer, ApiError, Command};
use p4shield_daemon::{ProgramAction, ProgramRecord};

/// Prints the records, the newest first.
pub(super) fn show(socket: &Path, request: Command, json: bool) -> anyhow::Result<Exit> {
    let records = match api::ask(socket, &request) {
        Ok(Answer::History(records)) => records,
        Ok(_) => return Err(ApiError::Unexpected.into()),
        Err(ApiError::Failed(why)) => return Err(Refused(why).into()),
        Err(e) => return Err(e.into()),
    };
    if json {
        output::json(&records)?;
    } else if records.is_empty() {
        output::line("no command has changed this program");
    } else {
        records.iter().for_each(|record| output::line(line(record)));
    }
    Ok(Exit::Done)
}

/// Describes a command on one line.
pub(super) fn line(record: &ProgramRecord) -> String {
    let ProgramRecord { time, uid, action, temporary, program, objects } = record;
    let action = match action {
        ProgramAction::Load => "loaded",
        ProgramAction::Unload => "unloaded",
        ProgramAction::Revert => "reverted to the configuration",
    };
    let mut line = format!("{action} by user {uid} at {}", utc(*time));
    if *temporary {
        line += ", until the next reload";
    }
    if let Some(program) = program {
        line += &format!(": {}", &program[..program.len().min(12)]);
    }
    let files: Vec<_> = objects.iter().map(|object| object.path.display().to_string()).collect();
    if !files.is_empty() {
        line += &format!(" from {}", files.join(" "));
    }
    line
}

/// Formats seconds since 1970 in UTC as RFC 3339 does.
fn utc(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| time::OffsetDateTime::from_unix_timestamp(s).ok());
    let text = time.and_then(|t| t.format(&time::format_description::well_known::Rfc3339).ok());
    text.unwrap_or_else(|| seconds.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_daemon::ObjectRecord;

    #[test]
    fn a_record_says_who_when_and_what() {
        let object = ObjectRecord { path: "/srv/guard.o".into(), sha256: "00".into() };
        let record = ProgramRecord {
            time: 1_700_000_000,
            uid: 1000,
            action: ProgramAction::Load,
            temporary: true,
            program: Some("0123456789abcdef".into()),
            objects: vec![object],
        };
        let expected = "loaded by user 1000 at 2023-11-14T22:13:20Z, until the next reload: 0123456789ab \
                        from /srv/guard.o";
        assert_eq!(line(&record), expected);
        assert_eq!(utc(u64::MAX), u64::MAX.to_string());
    }
}
