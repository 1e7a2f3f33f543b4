//! The one file that is installed: a drop-in for the switch's unit.

use std::path::{Path, PathBuf};

use crate::unit::quote;
use crate::{Kind, Root};

/// A file that adds to a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// Where it goes, as the host sees it.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

impl DropIn {
    /// Its name; drop-ins are read in the order of their names, and those of distributions begin with small numbers.
    pub(crate) const NAME: &'static str = "90-p4shield.conf";

    /// Where it is for a unit.
    pub(crate) fn path(unit: &str) -> PathBuf {
        Path::new("/etc/systemd/system").join(format!("{unit}.d")).join(Self::NAME)
    }

    /// Whether it is read before another drop-in, which then has the last word.
    pub(crate) fn comes_before(other: &Path) -> bool {
        let in_drop_ins = other.parent().is_some_and(|p| p.extension().is_some_and(|e| e == "d"));
        in_drop_ins && other.file_name().is_some_and(|name| *name > *Self::NAME)
    }

    /// The file for a unit.
    pub(crate) fn new(kind: Kind, unit: &str, environment: &[(String, String)], needed: &[&Path]) -> Self {
        let mut text = format!(
            "{}\n\
             # Has the switch load P4 Shield's library. To take it away: p4shield detach {} --apply\n\
             [Unit]\nWants=p4shield.service\nAfter=p4shield.service\n\
             # The linker goes on without a library that is missing, and packets would go unjudged.\n",
            mark(kind),
            kind.word()
        );
        for path in needed {
            text.push_str(&format!("AssertPathExists={}\n", path.display().to_string().replace('%', "%%")));
        }
        text.push_str("\n[Service]\n");
        for (name, value) in environment {
            text.push_str(&format!("Environment={}\n", quote(&format!("{name}={value}"))));
        }
        Self { path: Self::path(unit), text }
    }

    /// What is installed for a unit.
    pub(crate) fn installed(root: &Root, unit: &str) -> Installed {
        let path = Self::path(unit);
        if !root.is_file(&path) {
            return Installed::Nothing;
        }
        let text = root.read(&path).unwrap_or_default();
        match Kind::ALL.into_iter().find(|kind| text.starts_with(&mark(*kind))) {
            Some(kind) => Installed::Ours { kind, text },
            None => Installed::Foreign,
        }
    }
}

/// What stands where the drop-in goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    Nothing,
    Ours {
        kind: Kind,
        text: String,
    },
    /// A file of somebody else under our name.
    Foreign,
}

/// The first line, by which the file is known to be ours.
fn mark(kind: Kind) -> String {
    format!("# Written by `p4shield attach {}`.", kind.word())
}
