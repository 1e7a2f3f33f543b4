use super::*;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Memory as an application maps it, unmapped when dropped.
pub(crate) struct Buffer(Range<usize>);

impl Buffer {
    pub(crate) fn new(len: usize, flags: MapFlags) -> std::io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }?;
        let start = at.expose_provenance();
        Ok(Self(start..start + len))
    }

    pub(crate) fn private(len: usize) -> Self {
        Self::new(len, MapFlags::PRIVATE).unwrap()
    }

    pub(crate) fn addresses(&self) -> Range<usize> {
        self.0.clone()
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let at = std::ptr::with_exposed_provenance_mut(self.0.start);
        // SAFETY: mapped as long as this lives; no other thread writes it.
        unsafe { std::slice::from_raw_parts_mut(at, self.0.len()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.0.start);
        // SAFETY: the mapping is not used any more.
        let _ = unsafe { munmap(at, self.0.len()) };
    }
}

fn register(addresses: Range<usize>) -> Result<Arc<RegisteredUmem>, AccessConflict> {
    // SAFETY: a buffer of this test, which the kernel does not use.
    unsafe { RegisteredUmem::registering(addresses, false, true) }
}

fn why(umem: &RegisteredUmem) -> String {
    umem.packets().map(drop).unwrap_err()
}

#[test]
fn the_first_bind_decides_which_p4_vm_reads_a_umem() {
    let buffer = Buffer::private(1 << 16);
    let umem = register(buffer.addresses()).unwrap();
    assert!(why(&umem).contains("no socket is bound"), "no P4 VM reads it before a bind");
    umem.decide_access(Ok("alice".into())).unwrap();
    umem.decide_access(Ok("alice".into())).unwrap();
    assert_eq!(umem.packets().unwrap().tenant, "alice");
    assert_eq!(umem.packets().unwrap().addresses, buffer.addresses());
    assert_eq!(umem.decide_access(Ok("bob".into())), Err(AccessConflict), "alice's P4 VM reads it");
    assert_eq!(umem.decide_access(Err("an uplink".into())), Err(AccessConflict));
    assert_eq!(umem.packets().unwrap().tenant, "alice");
}

#[test]
fn a_umem_of_another_port_never_becomes_readable() {
    let buffer = Buffer::private(1 << 16);
    let umem = register(buffer.addresses()).unwrap();
    umem.decide_access(Err("an uplink".into())).unwrap();
    umem.decide_access(Ok("alice".into())).unwrap();
    assert_eq!(why(&umem), "an uplink", "the first socket's reason stays");
}

#[test]
fn a_umem_registered_twice_is_not_shared() {
    let buffer = Buffer::private(1 << 16);
    let (all, upper) = (buffer.addresses(), buffer.addresses().start + 4096..buffer.addresses().end);
    let first = register(all.clone()).unwrap();
    let second = register(upper).unwrap();
    for umem in [&first, &second] {
        umem.decide_access(Ok("alice".into())).unwrap();
        assert!(why(umem).contains("more than once"));
    }
    // The kernel uses the first one's pages for the second one, too: they must stay.
    let shared = Arc::downgrade(&first);
    drop(first);
    assert!(shared.upgrade().is_some());
    drop(second);
    assert!(shared.upgrade().is_none());

    let first = register(all.clone()).unwrap();
    first.decide_access(Ok("alice".into())).unwrap();
    assert_eq!(register(all.clone()).unwrap_err(), AccessConflict, "its packets may be another tenant's");
    assert_eq!(first.packets().unwrap().tenant, "alice");
    drop(first);
    register(all).unwrap().decide_access(Ok("bob".into())).unwrap();
}

#[test]
fn unwanted_and_unaligned_umems_stay_private() {
    let buffer = Buffer::private(1 << 16);
    for (unaligned, wanted, reason) in [(false, false, "no port"), (true, true, "start at any address")] {
        // SAFETY: as in `register`.
        let umem = unsafe { RegisteredUmem::registering(buffer.addresses(), unaligned, wanted) }.unwrap();
        assert!(why(&umem).contains(reason), "{}", why(&umem));
        assert!(umem.shared.is_none());
    }
}

#[test]
fn without_shared_memory_the_reason_is_reported() {
    let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
    let umem = RegisteredUmem::of(
        0..4096,
        Err(NotShareable::System { what: "make shared memory", source }),
        Vec::new(),
    );
    umem.decide_access(Ok("alice".into())).unwrap();
    umem.decide_access(Ok("bob".into())).unwrap();
    assert!(why(&umem).starts_with("cannot make shared memory: No space left"), "{}", why(&umem));
}
