//! Completion of a program's names, which the running switch is asked for.
//!
//! A shell completes by running `p4shield` with the words of its command line. A completer sees only the word
//! under the cursor, so it reads the others here: the table decides which keys and actions there are.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, ValueCompleter};
use p4shield_p4switch::api::{self, ActionNames, NameKind, NamesView, ObjectNames};

use super::SOCKET;

/// Completes the name of what a command of the switch shows or writes.
pub(super) fn object() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, |words, names| words.objects(names)))
}

/// Completes keys: the names of those that the command line does not have yet.
pub(super) fn keys() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, |words, names| words.keys(names)))
}

/// Completes an action of the table, and then the names of its parameters.
pub(super) fn action() -> ArgValueCompleter {
    ArgValueCompleter::new(ActionCompleter)
}

struct ActionCompleter;

impl ValueCompleter for ActionCompleter {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        candidates(current, |words, names| words.actions(names))
    }

    fn complete_at(&self, index: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        match index {
            0 => self.complete(current),
            _ => candidates(current, |words, names| words.params(names)),
        }
    }
}

/// Returns what begins with `current`. There are no candidates while the switch does not answer.
fn candidates(
    current: &OsStr,
    choose: impl Fn(&Words, &NamesView) -> Vec<String>,
) -> Vec<CompletionCandidate> {
    let words = Words::of(std::env::args().skip_while(|word| word != "--").skip(1));
    let Ok(names) = api::names(&words.socket) else { return Vec::new() };
    let current = current.to_string_lossy();
    let fits = |name: &String| name.starts_with(&*current) && name.chars().all(is_plain);
    choose(&words, &names).into_iter().filter(fits).map(CompletionCandidate::new).collect()
}

/// Returns whether a shell takes a character literally: the program may be that of another user.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.:-=".contains(c)
}

/// The words of a command line that decide what completes it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    socket: PathBuf,
    /// The command of the switch, such as `table`.
    command: String,
    /// The words behind its own command, such as `add`.
    rest: Vec<String>,
    /// The words of `--action`.
    action: Vec<String>,
}

impl Words {
    fn of(words: impl Iterator<Item = String>) -> Self {
        let mut found = Self { socket: SOCKET.into(), ..Self::default() };
        let mut words = words.skip_while(|word| word != "switch").skip(1).peekable();
        let mut positional = Vec::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--all" | "--zeros" | "--json" => {}
                "--socket" => found.socket = words.next().unwrap_or_default().into(),
                "--action" => {
                    while let Some(value) = words.next_if(|word| !word.starts_with("--")) {
                        found.action.push(value);
                    }
                }
                option if option.starts_with("--socket=") => found.socket = option[9..].into(),
                option if option.starts_with("--") => drop(words.next_if(|word| !word.starts_with("--"))),
                _ => positional.push(word),
            }
        }
        let mut positional = positional.into_iter();
        found.command = positional.next().unwrap_or_default();
        found.rest = positional.skip(1).collect();
        found
    }

    fn kinds(&self) -> &'static [NameKind] {
        match self.command.as_str() {
            "table" if self.rest.len() > 1 => &[NameKind::Table],
            "table" => &[NameKind::Table, NameKind::Values],
            "selector" => &[NameKind::Table],
            "value" => &[NameKind::Values],
            "counter" => &[NameKind::Counter],
            "register" => &[NameKind::Register],
            "meter" => &[NameKind::Meter],
            _ => &[],
        }
    }

    /// Returns the objects that the command works on, by their shortest names.
    fn objects(&self, names: &NamesView) -> Vec<String> {
        let all: Vec<_> = names.objects.iter().filter(|o| self.kinds().contains(&o.kind)).collect();
        all.iter().map(|o| shortest(&o.name, all.iter().map(|o| o.name.as_str()))).collect()
    }

    /// Returns the object that the command line names.
    fn object<'n>(&self, names: &'n NamesView) -> Option<&'n ObjectNames> {
        let name = self.rest.first()?;
        let of_kind = |o: &&ObjectNames| self.kinds().contains(&o.kind);
        names.objects.iter().filter(of_kind).find(|o| ends_with(&o.name, name))
    }

    fn keys(&self, names: &NamesView) -> Vec<String> {
        let given = |key: &String| self.rest.iter().any(|word| word.split('=').next() == Some(key));
        let keys = self.object(names).map(|o| o.keys.as_slice()).unwrap_or_default();
        keys.iter().filter(|key| !given(key)).map(|key| format!("{key}=")).collect()
    }

    fn actions(&self, names: &NamesView) -> Vec<String> {
        let all = self.object(names).map(|o| o.actions.as_slice()).unwrap_or_default();
        all.iter().map(|a| shortest(&a.name, all.iter().map(|a| a.name.as_str()))).collect()
    }

    /// Returns the parameters of the action that the command line names, without those that it has.
    fn params(&self, names: &NamesView) -> Vec<String> {
        let Some((name, given)) = self.action.split_first() else { return Vec::new() };
        let actions = self.object(names).map(|o| o.actions.as_slice()).unwrap_or_default();
        let action = actions.iter().find(|a: &&ActionNames| ends_with(&a.name, name));
        let has = |param: &String| given.iter().any(|word| word.split('=').next() == Some(param));
        let params = action.map(|a| a.params.as_slice()).unwrap_or_default();
        params.iter().filter(|param| !has(param)).map(|param| format!("{param}=")).collect()
    }
}

/// Returns whether `last` is a name's last parts, or all of it.
fn ends_with(name: &str, last: &str) -> bool {
    name.strip_suffix(last).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Returns the last parts of a name that no other name ends with.
fn shortest<'n>(name: &str, all: impl Iterator<Item = &'n str> + Clone) -> String {
    let starts = name.rmatch_indices('.').map(|(at, _)| at + 1).chain([0]);
    let mut parts = starts.map(|at| &name[at..]);
    let unique = |last: &&str| all.clone().filter(|other| ends_with(other, last)).count() == 1;
    parts.find(unique).unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        Words::of(line.split(' ').map(str::to_owned))
    }

    fn names() -> NamesView {
        let object = |name: &str, kind, keys: &[&str], actions: &[(&str, &str)]| ObjectNames {
            name: name.into(),
            kind,
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            actions: actions
                .iter()
                .map(|(name, param)| ActionNames { name: (*name).into(), params: vec![(*param).into()] })
                .collect(),
        };
        let actions = [("I.forward", "port"), ("I.drop", "why")];
        NamesView {
            objects: vec![
                object("I.routes", NameKind::Table, &["hdr.ip.to", "hdr.ip.from"], &actions),
                object("I.acl", NameKind::Table, &["port"], &[]),
                object("E.acl", NameKind::Table, &["port"], &[]),
                object("I.hits", NameKind::Counter, &["hdr.ip.to"], &[]),
                object("I.seen", NameKind::Register, &[], &[]),
            ],
        }
    }

    #[test]
    fn the_words_before_decide_what_completes_a_command() {
        let names = names();
        assert_eq!(words("p4shield switch table add ").objects(&names), ["routes", "I.acl", "E.acl"]);
        assert_eq!(words("p4shield switch counter set ").objects(&names), ["hits"]);
        assert_eq!(words("p4shield switch register reset ").objects(&names), ["seen"]);
        assert_eq!(words("p4shield switch port delete ").objects(&names), [""; 0]);
        let add = "p4shield switch table add --priority 7 routes";
        assert_eq!(words(&format!("{add} ")).keys(&names), ["hdr.ip.to=", "hdr.ip.from="]);
        assert_eq!(words(&format!("{add} hdr.ip.to=1 ")).keys(&names), ["hdr.ip.from="]);
        assert_eq!(words("p4shield switch counter entry hits ").keys(&names), ["hdr.ip.to="]);
        assert_eq!(words(&format!("{add} --action ")).actions(&names), ["forward", "drop"]);
        assert_eq!(words(&format!("{add} 1 --action forward ")).params(&names), ["port="]);
        assert_eq!(words(&format!("{add} 1 --action forward port=1 ")).params(&names), [""; 0]);
    }

    #[test]
    fn the_socket_is_that_of_the_command_line() {
        assert_eq!(words("p4shield switch table list ").socket, PathBuf::from(SOCKET));
        for line in ["--socket /run/a.sock", "--socket=/run/a.sock"] {
            let words = words(&format!("p4shield switch table list {line} "));
            assert_eq!(words.socket, PathBuf::from("/run/a.sock"), "{line}");
        }
    }

    #[test]
    fn no_candidate_means_something_to_a_shell() {
        assert!("RouterIngress.routes_v2=".chars().all(is_plain));
        for name in ["a*", "$(reboot)", "a b", "`id`", "a;b", "~", "a\n"] {
            assert!(!name.chars().all(is_plain), "{name}");
        }
    }
}
