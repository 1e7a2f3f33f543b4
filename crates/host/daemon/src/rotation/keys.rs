//! A tenant's keys as its supervisor holds them: one for each key file, and the previous one for a while
//! after a rotation.
//!
//! The previous key is in `KEY_FILE.previous`, with mode 0600, from before the key file is replaced until its
//! window ends, so that a daemon that restarts in between continues the window. Times are those of the steady
//! clock while the daemon runs, and of the real-time clock in that file.

use crate::config::Tenant;
use p4shield_seal::{KeyId, Now, PreviousKey, TenantKey};
use p4shield_text::chain;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A key file's key.
pub(crate) struct Holder {
    current: TenantKey,
    rotation: Option<Rotation>,
}

/// A rotation whose window has not ended.
pub(crate) struct Rotation {
    previous: TenantKey,
    /// Reading of the steady clock at which it ends.
    until_ns: u64,
    /// The same of the real-time clock, in seconds since 1970.
    until: u64,
    /// VMs that use the new key only.
    followed: BTreeSet<u16>,
}

/// What a P4 VM needs of a VM's keys.
pub(crate) struct KeysToSend<'a> {
    pub(crate) current: &'a TenantKey,
    /// The previous key, and the time that is left.
    pub(crate) previous: Option<(&'a TenantKey, Duration)>,
}

/// The keys of a tenant, by their files.
#[derive(Default)]
pub(crate) struct Keys {
    holders: BTreeMap<PathBuf, Holder>,
    /// By VM: the key that what runs its programs has.
    given: BTreeMap<u16, KeyId>,
    /// By VM: the rotation from the key of another file, which the VM had before.
    moved: BTreeMap<u16, Rotation>,
    /// VMs whose previous key only an adopted P4 VM knows.
    unknown: BTreeSet<u16>,
    /// VMs whose key has rotated and whose agent has not used the new key yet.
    awaited: BTreeSet<u16>,
}

/// A key that was rotated to.
pub(crate) struct NewKey {
    pub(crate) key: KeyId,
    /// The key before.
    pub(crate) previous: KeyId,
    /// End of the window, in seconds since 1970; none: all former keys have ended.
    pub(crate) until: Option<u64>,
}

/// Keys of a new configuration, read and checked.
pub(crate) type ReadKeys = BTreeMap<PathBuf, TenantKey>;

impl Holder {
    /// Reads a key file and, if a rotation goes on, its previous key.
    fn open(path: &Path, current: TenantKey, now: Now) -> Self {
        let rotation = match PreviousKey::load(path) {
            Ok(Some(kept)) => resume(path, kept, &current, now),
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(
                 event = "previous_key_lost",
                 %error,
                 "cannot continue the rotation of {}: only its present key is accepted",
                 path.display()
                );
                None
            }
        };
        Self { current, rotation }
    }

    /// Makes `new` the current key, and the current one the previous one for `window`.
    fn rotate(&mut self, path: &Path, new: TenantKey, window: Duration, now: Now) {
        let previous = std::mem::replace(&mut self.current, new);
        self.rotation = Rotation::new(previous, window, now);
        if self.rotation.is_none() {
            forget(path);
        }
    }

    /// Returns the rotation that goes on.
    fn rotation(&self, now: Now) -> Option<&Rotation> {
        self.rotation.as_ref().filter(|r| now.mono_ns < r.until_ns)
    }
}

impl Rotation {
    fn new(previous: TenantKey, window: Duration, now: Now) -> Option<Self> {
        let ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let until = now.real_ns.saturating_add(ns) / 1_000_000_000;
        (ns > 0).then(|| Self {
            previous,
            until_ns: now.mono_ns.saturating_add(ns),
            until,
            followed: BTreeSet::new(),
        })
    }
}

/// Continues a window that an earlier daemon began.
fn resume(path: &Path, kept: PreviousKey, current: &TenantKey, now: Now) -> Option<Rotation> {
    let left = kept.until.saturating_sub(now.real_ns / 1_000_000_000);
    // A clock that was set back does not make a window longer than it was.
    let left = Duration::from_secs(left).min(kept.window);
    if left.is_zero() || kept.successor != current.id() {
        forget(path);
        return None;
    }
    Rotation::new(kept.key, left, now)
}

/// Removes the previous key of a file.
fn forget(path: &Path) {
    if let Err(error) = PreviousKey::remove(path) {
        tracing::warn!(
         event = "previous_key_left",
         %error,
         "cannot remove the previous key of {}",
         path.display()
        );
    }
}

impl Keys {
    /// Reads the keys of a configuration.
    ///
    /// # Errors
    /// A file is refused.
    pub(crate) fn read(tenant: &Tenant) -> Result<ReadKeys, String> {
        let read = |(path, _): (&Path, Option<&str>)| {
            Ok((path.to_owned(), TenantKey::load(path).map_err(|e| chain(&e))?))
        };
        tenant.key_files().map(read).collect()
    }

    /// Returns the files whose keys have changed.
    pub(crate) fn rotated(&self, read: &ReadKeys) -> Vec<String> {
        let is_new = |(path, key): &(&PathBuf, &TenantKey)| {
            self.holders.get(*path).is_some_and(|holder| holder.current.id() != key.id())
        };
        read.iter().filter(is_new).map(|(path, _)| path.display().to_string()).collect()
    }

    /// Takes the keys of a configuration. A file with a new key begins a rotation; one that goes on ends, and
    /// its previous key with it.
    pub(crate) fn take(&mut self, tenant: &Tenant, old: &Tenant, read: ReadKeys) {
        let now = Now::read();
        self.note_moved(tenant, old, now);
        for path in self.holders.keys().filter(|path| !read.contains_key(*path)) {
            forget(path);
        }
        self.holders.retain(|path, _| read.contains_key(path));
        for (path, key) in read {
            match self.holders.get_mut(&path) {
                Some(holder) if holder.current.id() == key.id() => {}
                Some(holder) => {
                    keep(&path, &holder.current, &key, tenant.key_window, now);
                    holder.rotate(&path, key, tenant.key_window, now);
                }
                None => {
                    self.holders.insert(path.clone(), Holder::open(&path, key, now));
                }
            }
        }
    }

    /// Begins the rotations of VMs that get another key file. They end with this daemon.
    fn note_moved(&mut self, tenant: &Tenant, old: &Tenant, now: Now) {
        self.moved.retain(|v, _| tenant.vms.get(usize::from(*v)).is_some_and(|vm| !vm.is_vacant()));
        for (v, vm) in tenant.numbered_vms() {
            let Some(before) = old.vms.get(v).filter(|before| before.name == vm.name) else { continue };
            let (from, to) = (old.key_file_of(before), tenant.key_file_of(vm));
            let (Some(from), Some(_)) = (from.filter(|_| from != to), to) else { continue };
            let key = self.holders.get(from).map(|holder| holder.current.duplicate());
            let rotation = key.and_then(|key| Rotation::new(key, tenant.key_window, now));
            self.moved.extend(rotation.map(|rotation| (v as u16, rotation)));
        }
    }

    /// Returns the rotation of a VM that goes on.
    fn rotation(&self, tenant: &Tenant, number: usize, now: Now) -> Option<&Rotation> {
        let vm = number as u16;
        let moved = self.moved.get(&vm).filter(|r| now.mono_ns < r.until_ns);
        let holder = self.holders.get(tenant.key_file_of(tenant.vms.get(number)?)?)?;
        moved.or_else(|| holder.rotation(now).filter(|r| !r.followed.contains(&vm)))
    }

    /// Reads the configuration's keys again, as for a P4 VM that starts.
    ///
    /// # Errors
    /// A file is refused.
    pub(crate) fn refresh(&mut self, tenant: &Tenant) -> Result<(), String> {
        self.take(tenant, tenant, Self::read(tenant)?);
        Ok(())
    }

    /// What runs the programs has ended, and its keys with it.
    pub(crate) fn forget_given(&mut self) {
        self.given.clear();
    }

    /// Returns the keys of a VM, for what runs its programs.
    pub(crate) fn of(&self, tenant: &Tenant, number: usize) -> Option<KeysToSend<'_>> {
        let vm = tenant.vms.get(number)?;
        let holder = self.holders.get(tenant.key_file_of(vm)?)?;
        let now = Now::read();
        let rotation = self.rotation(tenant, number, now);
        let left = |r: &Rotation| Duration::from_nanos(r.until_ns.saturating_sub(now.mono_ns));
        Some(KeysToSend { current: &holder.current, previous: rotation.map(|r| (&r.previous, left(r))) })
    }

    /// Records that what runs a VM's programs has the VM's present key.
    pub(crate) fn gave(&mut self, tenant: &Tenant, number: usize) {
        let Some(id) = self.of(tenant, number).map(|keys| keys.current.id()) else { return };
        let before = self.given.insert(number as u16, id);
        let rotates = self.of(tenant, number).is_some_and(|keys| keys.previous.is_some());
        if rotates || before.is_some_and(|before| before != id) {
            self.awaited.insert(number as u16);
        }
    }

    /// Notes the keys that an adopted P4 VM has. If a key file was replaced meanwhile, the key rotates now.
    pub(crate) fn adopt(&mut self, tenant: &Tenant, status: &p4shield_control::Status) {
        let now = Now::read();
        for vm in &status.vms {
            let (Some(keys), number) = (vm.keys, usize::from(vm.vm)) else { continue };
            self.given.insert(vm.vm, KeyId(keys.current));
            if self.rotation(tenant, number, now).is_some() {
                self.awaited.insert(vm.vm);
            } else {
                self.unknown.insert(vm.vm);
            }
        }
    }

    /// An adopted P4 VM has the present keys.
    pub(crate) fn settle(&mut self) {
        self.unknown.clear();
    }

    /// Returns the window of the rotation that a VM's new key begins.
    pub(crate) fn window(&self, tenant: &Tenant, number: usize) -> Duration {
        match self.of(tenant, number).and_then(|keys| keys.previous) {
            Some((_, left)) => left,
            None if self.unknown.contains(&(number as u16)) => tenant.key_window,
            None => Duration::ZERO,
        }
    }

    /// Returns the VMs whose key is another than what runs their programs has.
    pub(crate) fn due(&self, tenant: &Tenant) -> Vec<usize> {
        let is_due = |v: &usize| {
            let current = self.of(tenant, *v).map(|keys| keys.current.id());
            let given = self.given.get(&(*v as u16)).copied();
            given.is_some() && current.is_some() && given != current
        };
        tenant.numbered_vms().map(|(v, _)| v).filter(is_due).collect()
    }

    /// Begins a rotation of the key in `path`: stores the present key as the previous one and the new one in
    /// its file. Without `new` it makes one. Without a window it ends all former keys, whatever goes on, and
    /// takes the file's key if that is another one.
    ///
    /// # Errors
    /// There is no such key, a rotation with a window would replace one that goes on or the file's new key,
    /// or the file cannot be written. Nothing has changed.
    pub(crate) fn rotate(
        &mut self,
        tenant: &Tenant,
        path: &Path,
        new: Option<TenantKey>,
        window: Duration,
    ) -> Result<NewKey, String> {
        let now = Now::read();
        let holder = self.holders.get_mut(path);
        let holder = holder.ok_or("the P4 VM has not started with its key yet; see `p4shield status`")?;
        if let Some(rotation) = holder.rotation(now).filter(|_| !window.is_zero()) {
            return Err(busy(tenant, path, rotation.until));
        }
        let on_disk = TenantKey::load(path).map_err(|e| chain(&e))?;
        let previous = holder.current.id();
        let is_replaced = on_disk.id() != previous;
        if is_replaced && !window.is_zero() {
            return Err(format!(
                "{} has another key already; run `p4shield reload`, which rotates to it, or `p4shield key \
                 rotate {} --window 0s`, which also ends all former keys",
                path.display(),
                owner(tenant, path)
            ));
        }
        let new = match new {
            Some(new) => new,
            None if is_replaced => on_disk.duplicate(),
            None => TenantKey::random(path).map_err(|e| chain(&e))?,
        };
        if new.id() == previous {
            return Err(format!("the P4 VM has this key of {} already", path.display()));
        }
        if !window.is_zero() {
            let seconds = window.as_secs() + u64::from(window.subsec_nanos() > 0);
            let until = now.real_ns / 1_000_000_000 + seconds;
            let kept = PreviousKey { key: on_disk, successor: new.id(), until, window };
            kept.store(path).map_err(|e| format!("cannot keep the previous key: {}", chain(&e)))?;
        }
        new.replace(path).inspect_err(|_| forget(path)).map_err(|e| chain(&e))?;
        let key = new.id();
        holder.rotate(path, new, window, now);
        Ok(NewKey { key, previous, until: holder.rotation(now).map(|r| r.until) })
    }

    /// Notes which VMs use their new key, and ends rotations that are over.
    pub(crate) fn observe(&mut self, tenant: &Tenant, status: &p4shield_control::Status) {
        let now = Now::read();
        for vm in &status.vms {
            let Some(keys) = vm.keys else { continue };
            let configured = tenant.vms.get(usize::from(vm.vm));
            let holder = configured.and_then(|c| self.holders.get_mut(tenant.key_file_of(c)?));
            let Some(holder) = holder.filter(|h| h.current.id() == KeyId(keys.current)) else { continue };
            if keys.agent_follows {
                self.awaited.remove(&vm.vm);
            }
            if keys.previous_ms.is_none() {
                self.moved.remove(&vm.vm);
                if let Some(rotation) = &mut holder.rotation {
                    rotation.followed.insert(vm.vm);
                }
            }
        }
        for (path, holder) in &mut self.holders {
            let Some(rotation) = &holder.rotation else { continue };
            let users = tenant.numbered_vms().filter(|(_, vm)| {
                let has_page = vm.info_page.is_some() || vm.log_page.is_some();
                has_page && tenant.key_file_of(vm) == Some(path)
            });
            let all = users.map(|(v, _)| v as u16).all(|v| rotation.followed.contains(&v));
            if all || now.mono_ns >= rotation.until_ns {
                tracing::info!(
                    event = "key_window_ended",
                    tenant = tenant.name,
                    "the previous key of {} has ended",
                    path.display()
                );
                holder.rotation = None;
                forget(path);
            }
        }
    }

    /// Returns whether the VM's agent has not used its new key although the window is over.
    pub(crate) fn is_overdue(&self, tenant: &Tenant, number: usize) -> bool {
        let vm = number as u16;
        self.awaited.contains(&vm) && self.of(tenant, number).is_some_and(|keys| keys.previous.is_none())
    }

    /// Returns when the window of a VM's rotation ends, in seconds since 1970.
    pub(crate) fn until(&self, tenant: &Tenant, number: usize) -> Option<u64> {
        self.rotation(tenant, number, Now::read()).map(|rotation| rotation.until)
    }
}

/// Keeps the previous key for the next daemon. Without it the window ends with this daemon.
fn keep(path: &Path, previous: &TenantKey, new: &TenantKey, window: Duration, now: Now) {
    let until = now.real_ns / 1_000_000_000 + window.as_secs();
    let kept = PreviousKey { key: previous.duplicate(), successor: new.id(), until, window };
    if let Err(error) = kept.store(path) {
        tracing::warn!(
            event = "previous_key_lost",
            "cannot keep the previous key for a restart of the daemon: {}",
            chain(&error)
        );
    }
}

fn busy(tenant: &Tenant, path: &Path, until: u64) -> String {
    let left = until.saturating_sub(Now::read().real_ns / 1_000_000_000);
    format!(
        "the key in {} rotates already, for {left} more seconds; wait until `p4shield status` shows that the \
         rotation is over, or end both former keys at once with `p4shield key rotate {} --window 0s`",
        path.display(),
        owner(tenant, path)
    )
}

/// Returns what a command calls the owner of a key: a tenant, or a VM with a key of its own.
fn owner(tenant: &Tenant, path: &Path) -> String {
    let vm = tenant.key_files().find(|(file, _)| *file == path).and_then(|(_, vm)| vm);
    vm.map_or_else(|| tenant.name.clone(), |vm| format!("{}/{vm}", tenant.name))
}
