//! Looks at everything before anything is done.

use std::path::{Path, PathBuf};

use crate::checks::{self, Host};
use crate::dropin::{DropIn, Installed};
use crate::finding::{Finding, Outcome};
use crate::systemd::{Service, Variable};
use crate::{Kind, Root, Target, library, target};

/// What is to be attached to what.
#[derive(Clone, Debug)]
pub struct Request {
    /// The host.
    pub root: Root,
    /// Which attachment.
    pub kind: Kind,
    /// The switch.
    pub target: Target,
    /// The switch's program, if it is not to be found out.
    pub program: Option<PathBuf>,
    /// The library, if it is not to be found.
    pub library: Option<PathBuf>,
    /// The daemon's configuration, which the library reads, too.
    pub config: PathBuf,
    /// The socket of Open vSwitch's database; none: it is not asked.
    pub database: Option<PathBuf>,
}

/// What was found, and what has to be there.
#[derive(Clone, Debug)]
pub struct Report {
    /// The host.
    pub root: Root,
    /// Which attachment.
    pub kind: Kind,
    /// The switch.
    pub target: Target,
    /// The switch's program, if it was found: the file itself, no link.
    pub program: Option<PathBuf>,
    /// The library.
    pub library: PathBuf,
    /// The configuration.
    pub config: PathBuf,
    /// What the switch's process has to find in its environment.
    pub environment: Vec<(String, String)>,
    /// What has to be installed; none if the switch is no service.
    pub drop_in: Option<DropIn>,
    /// Whether exactly that is installed.
    pub installed: bool,
    /// What was looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// What stands in the way.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.outcome == Outcome::Problem)
    }

    /// The command that starts a program with the library, for a shell; none for a service.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        let Target::Command(words) = &self.target else { return None };
        let set = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words = ["env".to_owned()].into_iter().chain(set).chain(words.iter().cloned());
        Some(words.map(|w| shell_word(&w)).collect::<Vec<_>>().join(" "))
    }
}

/// A word as a shell reads it back.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Looks whether the attachment can work there, and what has to be installed for it. Changes nothing.
#[must_use]
pub fn examine(request: &Request) -> Report {
    let Request { root, kind, target, .. } = request;
    let mut findings = Vec::new();
    let service = match target {
        Target::Unit(name) => checks::unit(root, *kind, name, &mut findings),
        Target::Command(_) => None,
    };
    let variables = service.as_ref().map(|s| s.environment(root)).unwrap_or_default();
    let program = program(request, service.as_ref());
    let linked = checks::program(root, *kind, target, program.as_deref(), &mut findings);
    let library = request.library.clone().unwrap_or_else(|| library::find(root, *kind));
    findings.extend(library::check(root, *kind, &library, target, linked.as_ref()));
    let host = Host {
        root,
        kind: *kind,
        target,
        service: service.as_ref(),
        variables: &variables,
        program: program.as_deref(),
        library: &library,
        config: &request.config,
        database: request.database.as_deref(),
    };
    host.look(&mut findings);

    let environment = environment(&library, &request.config, &variables);
    let drop_in = match target {
        Target::Unit(unit) => Some(DropIn::new(*kind, unit, &environment, &[&library, &request.config])),
        Target::Command(_) => None,
    };
    let installed = drop_in.as_ref().is_some_and(|d| is_installed(root, target, d));
    Report {
        root: root.clone(),
        kind: *kind,
        target: target.clone(),
        program: program.and_then(|p| root.resolve(&p).ok()),
        library,
        config: request.config.clone(),
        environment,
        drop_in,
        installed,
        findings,
    }
}

fn program(request: &Request, service: Option<&Service>) -> Option<PathBuf> {
    let found = || match &request.target {
        Target::Unit(_) => target::program_of(&request.root, service?),
        Target::Command(words) => target::program_in_path(&request.root, words.first()?),
    };
    request.program.clone().or_else(found)
}

fn is_installed(root: &Root, target: &Target, wanted: &DropIn) -> bool {
    matches!(DropIn::installed(root, target.name()), Installed::Ours { text, .. } if text == wanted.text)
}

/// Ours, and what the service loads already.
fn environment(library: &Path, config: &Path, others: &[Variable]) -> Vec<(String, String)> {
    let mut preload = library.display().to_string();
    let theirs = others.iter().rfind(|v| v.name == checks::PRELOAD && !v.wins && !v.value.is_empty());
    if let Some(theirs) = theirs {
        preload = format!("{preload}:{}", theirs.value);
    }
    let config = config.display().to_string();
    vec![(checks::PRELOAD.into(), preload), (p4shield_config::FILE_VARIABLE.into(), config)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_are_quoted_where_they_must_be() {
        for (word, shown) in [("--vdev=net_null0,x=1", "--vdev=net_null0,x=1"), ("a b", "'a b'"), ("", "''")]
        {
            assert_eq!(shell_word(word), shown);
        }
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
