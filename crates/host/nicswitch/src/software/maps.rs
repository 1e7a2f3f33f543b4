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
const FORMAT: u32 = 3;
/// The only key of the maps with one entry.
const FIRST: [u8; 4] = [0; 4];

/// The maps of a switch.
#[derive(Debug)]
pub(crate) struct Maps {
    policy: MapHandle,
    targets: MapHandle,
    counters: MapHandle,
    rates: MapHandle,
    identity: MapHandle,
}

impl Maps {
    /// Opens the maps; `None` if there are none, or not all yet. [`owner`] says whether they can be opened.
    pub(crate) fn open(folder: &Folder) -> Result<Option<Self>, NicError> {
        if NAMES.iter().any(|name| !folder.map(name).exists()) {
            return Ok(None);
        }
        let open = |name| open(folder, name);
        let identity = open(IDENTITY)?;
        sign(&identity)?;
        let (policy, targets) = (open(POLICY)?, open(TARGETS)?);
        Ok(Some(Self { policy, targets, counters: open(COUNTERS)?, rates: open(RATES)?, identity }))
    }

    /// Returns the version of the programs that all interfaces have; 0: not all have the same.
    pub(crate) fn programs(&self) -> Result<u32, NicError> {
        Ok(Identity::of(&self.identity)?.programs)
    }

    /// Records the version of the programs that all interfaces have.
    pub(crate) fn set_programs(&self, programs: u32) -> Result<(), NicError> {
        Identity { programs, ..Identity::of(&self.identity)? }.write(&self.identity)
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

/// `struct identity`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Identity {
    format: u32,
    programs: u32,
    namespace: u64,
}

impl Identity {
    fn of(map: &MapHandle) -> Result<Self, NicError> {
        let found =
            map.lookup(&FIRST, MapFlags::ANY).map_err(NicError::kernel("read whose maps these are"))?;
        let bytes = found.unwrap_or_default();
        let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk().copied());
        Ok(Self {
            format: word(0).map_or(0, u32::from_ne_bytes),
            programs: word(4).map_or(0, u32::from_ne_bytes),
            namespace: bytes.last_chunk().copied().map_or(0, u64::from_ne_bytes),
        })
    }

    fn write(&self, map: &MapHandle) -> Result<(), NicError> {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.format.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.programs.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.namespace.to_ne_bytes());
        map.update(&FIRST, &bytes, MapFlags::ANY).map_err(NicError::kernel("say whose maps these are"))
    }
}

/// Owner of the maps in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This version, in this network namespace; or there are no maps that say so.
    This,
    /// Another version, in this network namespace.
    AnotherVersion,
    /// Another network namespace, which may have ended.
    AnotherNamespace,
}

/// Returns the owner of the maps in a folder.
pub(crate) fn owner(folder: &Folder) -> Result<Owner, NicError> {
    if !folder.map(IDENTITY).exists() {
        return Ok(Owner::This);
    }
    let found = Identity::of(&open(folder, IDENTITY)?)?;
    Ok(match found {
        _ if found == Identity::default() => Owner::This,
        Identity { namespace, .. } if namespace != own_namespace()? => Owner::AnotherNamespace,
        Identity { format, .. } if format != FORMAT => Owner::AnotherVersion,
        _ => Owner::This,
    })
}

fn open(folder: &Folder, name: &str) -> Result<MapHandle, NicError> {
    MapHandle::from_pinned_path(folder.map(name)).map_err(NicError::kernel("open the maps"))
}

/// Returns the number of this thread's network namespace.
fn own_namespace() -> Result<u64, NicError> {
    Ok(rustix::fs::stat("/proc/thread-self/ns/net").map_err(|e| NicError::Interfaces(e.into()))?.st_ino)
}

/// Makes new maps this version's and this network namespace's.
fn sign(map: &MapHandle) -> Result<(), NicError> {
    if Identity::of(map)? != Identity::default() {
        return Ok(());
    }
    Identity { format: FORMAT, programs: 0, namespace: own_namespace()? }.write(map)
}
