//! Services of systemd: their unit files, and calls of the running systemd.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Root;
use crate::dropin::DropIn;
use crate::unit::{Setting, environment_file, parse, words};

/// The folders of unit files; the first takes precedence (systemd.unit(5)).
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Reason why a service cannot be found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoService {
    /// There is no such unit.
    Missing,
    /// The unit is masked.
    Masked,
}

/// A service as its files describe it, without P4 Shield's drop-in.
#[derive(Debug)]
pub(crate) struct Service {
    /// The unit's file.
    pub(crate) file: PathBuf,
    settings: Vec<Setting>,
}

/// A variable of a service's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
    /// The file that sets it.
    pub(crate) file: PathBuf,
    /// Whether it is set after P4 Shield's drop-in and so overrides it.
    pub(crate) wins: bool,
}

impl Service {
    /// Reads the files of the unit.
    pub(crate) fn find(root: &Root, unit: &str) -> Result<Self, NoService> {
        let mut files = FOLDERS.iter().map(|f| Path::new(f).join(unit));
        let file = files.find(|p| is_masked(root, p) || root.is_file(p)).ok_or(NoService::Missing)?;
        if is_masked(root, &file) {
            return Err(NoService::Masked);
        }
        let text = root.read(&file).map_err(|_| NoService::Missing)?;
        if text.trim().is_empty() {
            return Err(NoService::Masked);
        }
        let mut settings = parse(&file, &text);
        for file in drop_ins(root, unit) {
            settings.extend(root.read(&file).map(|text| parse(&file, &text)).unwrap_or_default());
        }
        Ok(Self { file, settings })
    }

    /// Returns the command that starts it.
    pub(crate) fn exec_start(&self) -> Option<Vec<String>> {
        // An empty value clears the previous ones. Only one-shot services have several; the first is used.
        let all = self.values("ExecStart");
        let last = all.iter().rposition(|s| s.value.is_empty()).map_or(0, |at| at + 1);
        all.get(last).map(|s| words(&s.value))
    }

    /// Returns the user that it runs as.
    pub(crate) fn user(&self) -> Option<&str> {
        self.values("User").last().map(|s| s.value.as_str()).filter(|u| !u.is_empty())
    }

    /// Returns its environment, in order: a later variable overrides an earlier one of the same name.
    pub(crate) fn environment(&self, root: &Root) -> Vec<Variable> {
        let (mut plain, mut from_files) = (Vec::new(), Vec::new());
        for setting in self.values("Environment") {
            if setting.value.is_empty() {
                plain.clear();
            }
            let wins = DropIn::comes_before(&setting.file);
            plain.extend(words(&setting.value).iter().filter_map(|w| variable(w, &setting.file, wins)));
        }
        for setting in self.values("EnvironmentFile") {
            if setting.value.is_empty() {
                from_files.clear();
            }
            let file = PathBuf::from(setting.value.trim_start_matches('-'));
            let text = root.read(&file).unwrap_or_default();
            let set = |(name, value)| Variable { name, value, file: file.clone(), wins: true };
            from_files.extend(environment_file(&text).into_iter().map(set));
        }
        plain.extend(from_files);
        plain
    }

    fn values(&self, name: &str) -> Vec<&Setting> {
        self.settings.iter().filter(|s| s.section == "Service" && s.name == name).collect()
    }
}

/// Returns whether a unit's file is a link to /dev/null (systemctl(1), `mask`).
fn is_masked(root: &Root, file: &Path) -> bool {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return false };
    let link = root.locate(folder).and_then(|at| std::fs::read_link(at.join(name)));
    link.is_ok_and(|to| to == Path::new("/dev/null"))
}

fn variable(word: &str, file: &Path, wins: bool) -> Option<Variable> {
    let (name, value) = word.split_once('=')?;
    Some(Variable { name: name.into(), value: value.replace("%%", "%"), file: file.into(), wins })
}

/// Returns a unit's drop-ins without P4 Shield's, in the order of reading: by name across folders.
fn drop_ins(root: &Root, unit: &str) -> Vec<PathBuf> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for folder in FOLDERS.map(|f| Path::new(f).join(format!("{unit}.d"))) {
        for name in root.names(&folder).into_iter().filter(|n| n.ends_with(".conf") && n != DropIn::NAME) {
            // A drop-in of the same name in an earlier folder replaces it.
            if found.iter().all(|(n, _)| *n != name) {
                found.push((name.clone(), folder.join(name)));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns whether systemd runs on this host.
pub(crate) fn runs(root: &Root) -> bool {
    root.is_host() && Path::new("/run/systemd/system").is_dir()
}

/// Runs `systemctl`. Returns its output; as an error if it fails.
pub(crate) fn systemctl(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new("systemctl");
    let output = command.args(words).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
