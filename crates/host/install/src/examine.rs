//! The examination of a host before anything is changed.

use std::path::{Path, PathBuf};

use crate::checks::{self, Host};
use crate::dropin::{DropIn, Installed};
use crate::finding::{Finding, Severity};
use crate::systemd::{Service, Variable};
use crate::{PreloadedAttachment, Root, Target, library, target};

/// What to attach to which switch.
#[derive(Clone, Debug)]
pub struct Request {
    /// The host.
    pub root: Root,
    /// The attachment.
    pub kind: PreloadedAttachment,
    /// The switch.
    pub target: Target,
    /// The switch's program; `None`: found by [`examine`].
    pub program: Option<PathBuf>,
    /// The library; `None`: found by [`examine`].
    pub library: Option<PathBuf>,
    /// The daemon's configuration, which the library reads, too.
    pub config: PathBuf,
    /// The socket of Open vSwitch's database; `None`: not read.
    pub database: Option<PathBuf>,
}

/// The result of an examination.
#[derive(Clone, Debug)]
pub struct Report {
    /// The host.
    pub root: Root,
    /// The attachment.
    pub kind: PreloadedAttachment,
    /// The switch.
    pub target: Target,
    /// The switch's program, if found, with symbolic links resolved.
    pub program: Option<PathBuf>,
    /// The library.
    pub library: PathBuf,
    /// The configuration.
    pub config: PathBuf,
    /// The environment that the switch's process needs.
    pub environment: Vec<(String, String)>,
    /// The drop-in to install; `None` if the switch is no service.
    pub drop_in: Option<DropIn>,
    /// Whether exactly this drop-in is installed.
    pub installed: bool,
    /// The results of all checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the findings that prevent the installation.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|f| f.outcome == Severity::Problem)
    }

    /// Returns the shell command that starts a program with the library; `None` for a service.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        let Target::Command(words) = &self.target else { return None };
        let set = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let words = ["env".to_owned()].into_iter().chain(set).chain(words.iter().cloned());
        Some(words.map(|w| shell_word(&w)).collect::<Vec<_>>().join(" "))
    }
}

/// Quotes a word for a shell.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Checks whether the attachment can work on the host, and determines what has to be installed. Changes
/// nothing.
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
    host.check(&mut findings);

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

/// Returns the variables for the library, together with what the service preloads already.
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
    fn shell_words_are_quoted_if_necessary() {
        for (word, shown) in [("--vdev=net_null0,x=1", "--vdev=net_null0,x=1"), ("a b", "'a b'"), ("", "''")]
        {
            assert_eq!(shell_word(word), shown);
        }
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
