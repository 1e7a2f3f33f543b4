//! Bundles, for tenants that pin a key: the daemon delivers them and remembers which versions ran. The P4 VM
//! alone verifies them.
//!
//! A bundle holds the programs of both directions. The daemon keeps it in the place of the ingress program;
//! the place of the egress program stays empty.

use super::provision::{Objects, ProgramHost, ProgramRequest};
use super::{ANSWER_TIMEOUT, VERIFY_TIMEOUT};
use crate::config::Tenant;
use p4shield_abi::Direction;
use p4shield_bundle::{MAX_BUNDLE, PublicKey};
use p4shield_control::{BundleLoaded, BundleRequest, ClientError, Reply, Request, Resources};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Subfolder of the daemon's state folder.
const FOLDER: &str = "p4vm";

/// The newest version that ran, by VM. A P4 VM forgets it when it ends; a host that is honest does not.
#[derive(Debug, Default)]
pub(super) struct BundleVersions {
    tenant: String,
    path: Option<PathBuf>,
    newest: BTreeMap<String, u64>,
}

impl BundleVersions {
    /// Reads what earlier daemons stored below the state folder; without a folder, versions are kept in
    /// memory only.
    pub(super) fn open(tenant: &str, state: Option<&Path>) -> Self {
        let path = state.map(|state| state.join(FOLDER).join(format!("{tenant}.bundles")));
        let mut versions = Self { tenant: tenant.to_owned(), path, newest: BTreeMap::new() };
        match versions.read() {
            Ok(newest) => versions.newest = newest,
            Err(why) => versions.warn(&why),
        }
        versions
    }

    fn read(&self) -> Result<BTreeMap<String, u64>, String> {
        let Some(path) = &self.path else { return Ok(BTreeMap::new()) };
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| e.to_string()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn floor(&self, vm: &str) -> u64 {
        self.newest.get(vm).copied().unwrap_or(0)
    }

    /// Notes that a version runs.
    pub(super) fn note(&mut self, vm: &str, version: u64) {
        if version <= self.floor(vm) {
            return;
        }
        self.newest.insert(vm.to_owned(), version);
        if let Err(error) = self.write() {
            self.warn(&error.to_string());
        }
    }

    fn write(&self) -> std::io::Result<()> {
        use std::io::Write;
        let Some((path, folder)) = self.path.as_deref().and_then(|path| Some((path, path.parent()?))) else {
            return Ok(());
        };
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        file.write_all(&serde_json::to_vec(&self.newest)?)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        std::fs::File::open(folder)?.sync_all()
    }

    /// Warns only: without the versions, the next P4 VM accepts an older bundle of the same tenant.
    fn warn(&self, error: &str) {
        tracing::warn!(
            event = "bundle_versions_not_kept",
            tenant = self.tenant,
            "the next P4 VM may accept an older bundle: {error}"
        );
    }
}

/// Reads the key that the tenant pins.
pub(super) fn pinned_key(tenant: &Tenant) -> Result<Option<PublicKey>, String> {
    let Some(path) = &tenant.bundle_key else { return Ok(None) };
    crate::programs::bundle_files::read_key(path).map(Some).map_err(|why| format!("bundle_key: {why}"))
}

/// Pins the tenant's key, if there is one; the P4 VM accepts the same key again and no other.
pub(super) fn pin(
    host: &mut (impl ProgramHost + ?Sized),
    key: Option<&PublicKey>,
) -> Result<(), ClientError> {
    let Some(key) = key else { return Ok(()) };
    let request = Request::PinBundleKey { key: key.to_bytes() };
    host.request(ProgramRequest { timeout: ANSWER_TIMEOUT, ..ProgramRequest::new(request) }).map(drop)
}

/// What a P4 VM does with a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Runs its programs at once.
    Load,
    /// Keeps them for the commit.
    Stage,
}

/// Gives a P4 VM a bundle, and waits until it has verified, built and checked the programs.
pub(super) fn send(
    host: &mut (impl ProgramHost + ?Sized),
    (vm, name): (usize, &str),
    objects: &Objects,
    versions: &BundleVersions,
    step: Step,
) -> Result<BundleLoaded, ClientError> {
    let [bytes] = objects.as_slice() else {
        let message = format!("a bundle is one file, and {} were given", objects.len());
        return Err(ClientError::Failed(message));
    };
    if bytes.len() > MAX_BUNDLE {
        let message = format!("the bundle has {} bytes; at most {MAX_BUNDLE} are allowed", bytes.len());
        return Err(ClientError::Failed(message));
    }
    let mut resources = Resources::none();
    let (name, len, floor) = (name.to_owned(), bytes.len() as u32, versions.floor(name));
    let bundle = BundleRequest { vm: vm as u16, name, bytes: resources.add_bytes(bytes), len, floor };
    let request = match step {
        Step::Load => Request::LoadBundle(bundle),
        Step::Stage => Request::StageBundle(bundle),
    };
    let request =
        ProgramRequest { resources: &resources, timeout: VERIFY_TIMEOUT, ..ProgramRequest::new(request) };
    match host.request(request)? {
        Reply::BundleLoaded(loaded) => Ok(loaded),
        _ => Err(ClientError::Unexpected),
    }
}

/// What a P4 VM has loaded.
pub(super) struct LoadedProgram {
    /// The digest by which the daemon recognises that it runs; none: no program.
    pub(super) digest: Option<[u8; 32]>,
    /// What the operator is told.
    pub(super) text: String,
}

/// Describes what runs, for the operator.
pub(super) fn describe(loaded: &BundleLoaded) -> String {
    let program = |d: Direction| {
        let digest = loaded.programs[d as usize].map_or_else(|| "no program".to_owned(), hex::encode);
        format!("{} {digest}", d.name())
    };
    let [ingress, egress] = Direction::ALL.map(program);
    format!("bundle version {}: {ingress}, {egress}", loaded.version)
}

/// Returns the digest by which the daemon recognises that a bundle runs.
pub(super) fn mark(loaded: &BundleLoaded) -> Option<[u8; 32]> {
    loaded.programs.into_iter().flatten().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_only_rise_and_survive_the_daemon() {
        let state = tempfile::tempdir().unwrap();
        let mut versions = BundleVersions::open("alice", Some(state.path()));
        assert_eq!(versions.floor("web"), 0);
        versions.note("web", 7);
        versions.note("web", 5);
        versions.note("db", 2);
        let next = BundleVersions::open("alice", Some(state.path()));
        assert_eq!((next.floor("web"), next.floor("db")), (7, 2));
        assert_eq!(BundleVersions::open("bob", Some(state.path())).floor("web"), 0);
        // A file that was damaged costs the floor, not the daemon.
        std::fs::write(state.path().join("p4vm/alice.bundles"), "{").unwrap();
        assert_eq!(BundleVersions::open("alice", Some(state.path())).floor("web"), 0);
        let mut volatile = BundleVersions::open("alice", None);
        volatile.note("web", 3);
        assert_eq!(volatile.floor("web"), 3);
    }
}
