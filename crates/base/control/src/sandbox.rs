//! The report of a P4 VM's sandbox, and the names of the layers that may be missing from it.

use std::fmt;
use std::str::FromStr;

/// Layer of the sandbox that an operator may waive on a kernel that lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A user namespace. Without it the P4 VM has to start as root, to be able to drop all privileges.
    UserNamespace,
    /// A cgroup namespace: hides the names of the host's cgroups.
    CgroupNamespace,
    /// Landlock: no access to files, TCP ports, abstract sockets and foreign processes, whatever else fails.
    Landlock,
    /// System call allow-lists.
    Seccomp,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 4] = [Self::UserNamespace, Self::CgroupNamespace, Self::Landlock, Self::Seccomp];

    /// Returns the measure's name on the command line and in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UserNamespace => "user-namespace",
            Self::CgroupNamespace => "cgroup-namespace",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|m| m.name()).collect();
            format!("no measure is named {name:?}; those that may be missing are {}", names.join(", "))
        })
    }
}

/// What a P4 VM's sandbox enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SandboxReport {
    /// Measures that the kernel lacks and the operator waived.
    pub missing: Vec<Measure>,
    /// Version of Landlock in force, 0 if none: network rules came with 4, scopes with 6.
    pub landlock_abi: i32,
    /// User that the P4 VM runs as, as the host sees it.
    pub uid: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_have_the_names_that_status_shows() {
        for m in Measure::ALL {
            assert_eq!(m.name().parse(), Ok(m));
        }
        let error = "apparmor".parse::<Measure>().unwrap_err();
        assert!(error.contains("landlock"), "{error}");
    }
}
