//! The user and capabilities of a P4 VM: unprivileged, without a way to gain privileges.

use crate::{During as _, SandboxError, Step};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use rustix::{process, thread};

const STEP: Step = Step("give up its capabilities", "start it as root or with user namespaces enabled");

/// Changes root to `uid` with these supplementary groups, such as those of devices. Keeps capabilities for
/// the creation of namespaces, which hardened distributions allow only with capabilities. Does nothing for
/// other users.
pub fn shed_root(uid: u32, groups: &[process::Gid]) -> Result<(), SandboxError> {
    if !process::geteuid().is_root() {
        return Ok(());
    }
    let step = Step(
        "become another user than root",
        "its user must exist in this container's user namespace (see /proc/self/uid_map), and it needs \
         CAP_SETUID and CAP_SETGID for the change",
    );
    let (user, group) = (process::Uid::from_raw(uid), process::Gid::from_raw(uid));
    thread::set_thread_groups(groups).during(step)?;
    thread::set_keep_capabilities(true).during(step)?;
    thread::set_thread_res_gid(group, group, group).during(step)?;
    thread::set_thread_res_uid(user, user, user).during(step)?;
    let sets = thread::capabilities(None).during(step)?;
    let raised = CapabilitySets { effective: sets.permitted, ..sets };
    thread::set_capabilities(None, raised).during(step)?;
    // The change of user made root the owner of /proc/self, where the user namespace's maps are written.
    process::set_dumpable_behavior(DumpableBehavior::Dumpable).during(step)
}

/// Empties all capability sets irrevocably, and makes the process unreadable to other processes of its user.
///
/// # Errors
/// The kernel refuses it.
pub fn drop_capabilities() -> Result<(), SandboxError> {
    keep_capabilities(CapabilitySet::empty())?;
    process::set_dumpable_behavior(DumpableBehavior::NotDumpable).during(STEP)
}

/// Gives up all capabilities but these irrevocably. Programs that the process starts have the same, and no
/// way to others, also as root.
///
/// # Errors
/// The kernel refuses it.
pub fn keep_capabilities(kept: CapabilitySet) -> Result<(), SandboxError> {
    let step = STEP;
    thread::set_no_new_privs(true).during(step)?;
    for number in (0..u64::BITS).filter(|n| kept.bits() & (1 << n) == 0) {
        // SAFETY: PR_CAPBSET_DROP takes one integer and touches no memory.
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        if done < 0 {
            let e = std::io::Error::last_os_error();
            // `number` is beyond the kernel's highest capability.
            if e.raw_os_error() == Some(libc::EINVAL) && number > 0 {
                break;
            }
            return Err(step.failed(e));
        }
    }
    let sets = thread::capabilities(None).during(step)?;
    thread::set_capabilities(None, CapabilitySets { inheritable: kept, ..sets }).during(step)?;
    thread::clear_ambient_capability_set().during(step)?;
    for one in kept.iter() {
        thread::configure_capability_in_ambient_set(one, true).during(step)?;
    }
    type Bits = CapabilitiesSecureBits;
    thread::set_capabilities_secure_bits(
        Bits::NO_ROOT
            | Bits::NO_ROOT_LOCKED
            | Bits::NO_SETUID_FIXUP
            | Bits::NO_SETUID_FIXUP_LOCKED
            | Bits::KEEP_CAPS_LOCKED
            | Bits::NO_CAP_AMBIENT_RAISE
            | Bits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )
    .during(step)?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    thread::set_capabilities(None, sets).during(step)
}
