//! The program into which the library is loaded.

use std::path::{Path, PathBuf};

use crate::Root;
use crate::systemd::Service;

/// Paths of the program in Open vSwitch's packages, or of a link to the selected build.
const OVS_PROGRAMS: [&str; 3] =
    ["/usr/sbin/ovs-vswitchd", "/usr/local/sbin/ovs-vswitchd", "/usr/bin/ovs-vswitchd"];
/// The search path for programs of another host's files.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The target of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A service of systemd, by the name of its unit.
    Unit(String),
    /// A program that is no service: its name or path, and its arguments.
    Command(Vec<String>),
}

impl Target {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Unit(name) => name,
            Self::Command(words) => words.first().map_or("", String::as_str),
        }
    }
}

/// Returns the program of a service: that of `ExecStart`, or the program that Open vSwitch's script starts.
pub(crate) fn program_of(root: &Root, service: &Service) -> Option<PathBuf> {
    let started =
        PathBuf::from(service.exec_start()?.first()?.trim_start_matches(['@', '-', ':', '+', '!', '|']));
    if started.file_name().is_some_and(|name| name == "ovs-ctl") {
        return OVS_PROGRAMS.iter().map(PathBuf::from).find(|p| root.is_file(p));
    }
    Some(started)
}

/// Returns the program that a shell would start.
pub(crate) fn program_in_path(root: &Root, word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return std::path::absolute(word).ok();
    }
    let path = std::env::var_os("PATH").filter(|_| root.is_host()).unwrap_or_else(|| PATH.into());
    std::env::split_paths(&path).map(|folder| folder.join(word)).find(|p| root.is_file(p))
}

/// Returns whether this is Open vSwitch.
pub(crate) fn is_ovs(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ovs-vswitchd"))
}
