//! The pinned maps.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::folder::Folder;
use crate::policy::{ENTRY, KEY, Policy};
use crate::{NicError, PortCounters};

pub(crate) const POLICY: &str = "nic_policy";
pub(crate) const TARGETS: &str = "nic_targets";
pub(crate) const COUNTERS: &str = "nic_counters";
pub(crate) const RATES: &str = "nic_rates";
pub(crate) const IDENTITY: &str = "nic_identity";
/// All of them, by their names in the object and in the folder.
pub(crate) const NAMES: [&str; 5] = [POLICY, TARGETS, COUNTERS, RATES, IDENTITY];

/// The format of the maps: a change of `maps.bpf.h` changes it.
const FORMAT: u64 = 2;
/// The only key of the maps with one entry.
const FIRST: [u8; 4] = [0; 4];

/// The maps of a switch.
#[derive(Debug)]
pub(crate) struct Maps {
    policy: MapHandle,
    targets: MapHandle,
    counters: MapHandle,
    rates: MapHandle,
}

impl Maps {
    /// Opens the maps; `None` if there are none, or not all yet.
    pub(crate) fn open(folder: &Folder) -> Result<Option<Self>, NicError> {
        if NAMES.iter().any(|name| !folder.map(name).exists()) {
            return Ok(None);
        }
        let open =
            |name| MapHandle::from_pinned_path(folder.map(name)).map_err(NicError::kernel("open the maps"));
        check_identity(folder, &open(IDENTITY)?)?;
        let (policy, targets) = (open(POLICY)?, open(TARGETS)?);
        Ok(Some(Self { policy, targets, counters: open(COUNTERS)?, rates: open(RATES)? }))
    }

    /// Reads the policy in force, if there is one.
    pub(crate) fn policy(&self) -> Result<Option<Policy>, NicError> {
        let read = || -> libbpf_rs::Result<Option<Policy>> {
            let Some(id) = self.policy.lookup(&FIRST, MapFlags::ANY)? else { return Ok(None) };
            let id = id.first_chunk().copied().map_or(0, u32::from_ne_bytes);
            let map = MapHandle::from_map_id(id)?;
            let mut policy = Policy::new();
            for key in map.keys() {
                let entry = map.lookup(&key, MapFlags::ANY)?.unwrap_or_default();
                if let (Ok(key), Ok(entry)) = (key.try_into(), entry.try_into()) {
                    policy.insert(key, entry);
                }
            }
            Ok(Some(policy))
        };
        read().map_err(NicError::kernel("read the policy"))
    }

    /// Puts a policy in force. When this returns, no frame is judged by the one before any more.
    pub(crate) fn replace_policy(&self, policy: &Policy) -> Result<(), NicError> {
        let write = || -> libbpf_rs::Result<()> {
            let options = bpf_map_create_opts {
                sz: size_of::<bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
                ..Default::default()
            };
            let entries = policy.len().max(1) as u32;
            let map = MapHandle::create(
                MapType::Hash,
                Some("nic_ports"),
                KEY as u32,
                ENTRY as u32,
                entries,
                &options,
            )?;
            for (key, entry) in policy {
                map.update(key, entry, MapFlags::NO_EXIST)?;
            }
            map.freeze()?;
            // For a map in a map, the kernel waits for a grace period of RCU before it returns.
            self.policy.update(&FIRST, &map.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
        };
        write().map_err(NicError::kernel("replace the policy"))
    }

    /// Lets frames be redirected to an interface, and counts its frames and their rate. All begin anew if it
    /// is a new one.
    pub(crate) fn add_port(&self, interface: u32) -> Result<(), NicError> {
        let key = interface.to_ne_bytes();
        let add = || -> libbpf_rs::Result<()> {
            if self.counters.lookup_percpu(&key, MapFlags::ANY)?.is_none() {
                let zeros = vec![vec![0; PortCounters::BYTES]; libbpf_rs::num_possible_cpus()?];
                self.counters.update_percpu(&key, &zeros, MapFlags::NO_EXIST)?;
            }
            if self.rates.lookup(&key, MapFlags::ANY)?.is_none() {
                self.rates.update(&key, &[0; 8], MapFlags::ANY)?;
            }
            if self.targets.lookup(&key, MapFlags::ANY)?.is_none() {
                self.targets.update(&key, &key, MapFlags::ANY)?;
            }
            Ok(())
        };
        add().map_err(NicError::kernel("add a port to the maps"))
    }

    /// Removes the counters, rates and targets of all interfaces but these.
    pub(crate) fn remove_ports_but(&self, keep: &BTreeSet<u32>) -> Result<(), NicError> {
        let is_other =
            |key: &Vec<u8>| key.first_chunk().is_none_or(|k| !keep.contains(&u32::from_ne_bytes(*k)));
        for map in [&self.targets, &self.counters, &self.rates] {
            // All keys first: deleting one while iterating begins the iteration again.
            for key in map.keys().filter(is_other).collect::<Vec<_>>() {
                match map.delete(&key) {
                    // The kernel itself removes the target of an interface that goes.
                    Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {}
                    result => result.map_err(NicError::kernel("remove a port from the maps"))?,
                }
            }
        }
        Ok(())
    }

    /// Reads the counters of an interface, one value for each processor.
    pub(crate) fn counters(&self, interface: u32) -> Result<Option<Vec<Vec<u8>>>, NicError> {
        let found = self.counters.lookup_percpu(&interface.to_ne_bytes(), MapFlags::ANY);
        found.map_err(NicError::kernel("read the counters"))
    }
}

/// Checks that the maps are this version's and this network namespace's, and signs them if they are new.
fn check_identity(folder: &Folder, map: &MapHandle) -> Result<(), NicError> {
    let failed = || NicError::kernel("read whose maps these are");
    let namespace =
        rustix::fs::stat("/proc/thread-self/ns/net").map_err(|e| NicError::Interfaces(e.into()))?.st_ino;
    let own: Vec<u8> = [FORMAT, namespace].into_iter().flat_map(u64::to_ne_bytes).collect();
    let found = map.lookup(&FIRST, MapFlags::ANY).map_err(failed())?.unwrap_or_default();
    if found.iter().all(|byte| *byte == 0) {
        return map.update(&FIRST, &own, MapFlags::ANY).map_err(failed());
    }
    let foreign = |reason| NicError::Foreign { folder: folder.path().to_owned(), reason };
    if found.get(..8) != own.get(..8) {
        return Err(foreign("has maps of another version of P4 Shield; delete it with that version"));
    }
    if found != own {
        return Err(foreign("is that of another network namespace; use it there, or choose another folder"));
    }
    Ok(())
}
