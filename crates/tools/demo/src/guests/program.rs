//! Programs that run in a guest while the script uses the guest's shell for something else.

use anyhow::Context;
use p4shield_testbed::Guest;
use p4shield_testbed::process::last_lines;

/// Lines of a log that an error shows.
const SHOWN: usize = 5;

/// A program in a guest. Its files there are `/run/NAME` with these endings: `in`, a pipe that is its
/// standard input; `out`, its output; `log`, its error output; `code`, its exit code once it has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// The name of its files.
    pub(super) name: &'static str,
    /// Its name in messages.
    pub(super) title: &'static str,
}

impl Program {
    /// Starts it with this command line.
    pub(super) fn start(self, guest: &mut Guest, line: &str) -> anyhow::Result<()> {
        let at = format!("/run/{}", self.name);
        // A pipe that is open for both directions has no end, also if other programs open and close it.
        let run = format!("{line} <>{at}.in >>{at}.out 2>{at}.log; echo $? >{at}.new; mv {at}.new {at}.code");
        guest
            .must(&format!("mkfifo {at}.in; touch {at}.out {at}.log; {{ {run}; }} &"))
            .with_context(|| format!("cannot start {}", self.title))?;
        Ok(())
    }

    /// Writes a line to its standard input.
    pub(super) fn tell(self, guest: &mut Guest, line: &str) -> anyhow::Result<()> {
        guest.must(&format!("echo {line} >/run/{}.in", self.name))?;
        Ok(())
    }

    /// Returns the end of its log.
    pub(super) fn log_end(self, guest: &mut Guest) -> String {
        let log = guest.run(&format!("tail -n {SHOWN} /run/{}.log 2>/dev/null", self.name), 30);
        last_lines(&log.map_or_else(|e| e.to_string(), |shown| shown.output), SHOWN)
    }
}

/// The part of a guest's line that prints `ended NAME CODE` for each program that has ended.
pub(super) const ENDED: &str =
    "for f in /run/*.code; do [ ! -e $f ] || echo ended $(basename $f .code) $(cat $f); done";

/// Returns the program of a line that [`ENDED`] printed, with its exit code.
pub(super) fn ended<'l>(programs: &[Program], line: &'l str) -> Option<(Program, &'l str)> {
    let (name, code) = line.strip_prefix("ended ")?.split_once(' ')?;
    Some((*programs.iter().find(|program| program.name == name)?, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ended_is_found_by_name() {
        let programs =
            [Program { name: "agent", title: "the agent" }, Program { name: "audit", title: "the auditor" }];
        let (program, code) = ended(&programs, "ended audit 137").unwrap();
        assert_eq!((program.title, code), ("the auditor", "137"));
        for line in ["ended other 1", "ended audit", "TCP: inuse 3"] {
            assert!(ended(&programs, line).is_none(), "{line}");
        }
    }
}
