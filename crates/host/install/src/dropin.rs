//! The only file that is installed: a drop-in for the switch's unit.

use std::path::{Path, PathBuf};

use crate::unit::quote;
use crate::{PreloadedAttachment, Root};

/// A file that extends a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// Its path, as the host sees it.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

impl DropIn {
    /// Its file name. systemd reads drop-ins in the order of their names; those of distributions start with
    /// small numbers.
    pub(crate) const NAME: &'static str = "90-p4shield.conf";

    /// Returns the path for a unit.
    pub(crate) fn path(unit: &str) -> PathBuf {
        Path::new("/etc/systemd/system").join(format!("{unit}.d")).join(Self::NAME)
    }

    /// Returns whether systemd reads it before another drop-in, which then overrides it.
    pub(crate) fn comes_before(other: &Path) -> bool {
        let in_drop_ins = other.parent().is_some_and(|p| p.extension().is_some_and(|e| e == "d"));
        in_drop_ins && other.file_name().is_some_and(|name| *name > *Self::NAME)
    }

    /// Returns the drop-in for a unit.
    pub(crate) fn new(
        kind: PreloadedAttachment,
        unit: &str,
        environment: &[(String, String)],
        needed: &[&Path],
    ) -> Self {
        let mut text = format!(
            "{}\n\
             # Loads P4 Shield's library into the switch. To remove it: p4shield detach {} --apply\n\
             [Unit]\nWants=p4shield.service\nAfter=p4shield.service\n\
             # The linker ignores a missing library, and no program would judge packets.\n",
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

    /// Returns what is installed for a unit.
    pub(crate) fn installed(root: &Root, unit: &str) -> Installed {
        let path = Self::path(unit);
        if !root.is_file(&path) {
            return Installed::Nothing;
        }
        let text = root.read(&path).unwrap_or_default();
        match PreloadedAttachment::ALL.into_iter().find(|kind| text.starts_with(&mark(*kind))) {
            Some(kind) => Installed::Ours { kind, text },
            None => Installed::Foreign,
        }
    }
}

/// What exists at the drop-in's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    Nothing,
    Ours {
        kind: PreloadedAttachment,
        text: String,
    },
    /// A file with this name that P4 Shield did not write.
    Foreign,
}

/// Returns the first line, which identifies a file of P4 Shield.
fn mark(kind: PreloadedAttachment) -> String {
    format!("# Written by `p4shield attach {}`.", kind.word())
}
