use super::*;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Private memory as an application maps it, unmapped when dropped.
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
        // SAFETY: mapped as long as this lives; nobody else writes it here.
        unsafe { std::slice::from_raw_parts_mut(at, self.0.len()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.0.start);
        // SAFETY: nobody uses it any more.
        let _ = unsafe { munmap(at, self.0.len()) };
    }
}

fn register(addresses: Range<usize>) -> Result<Arc<Umem>, Taken> {
    // SAFETY: a buffer of this test's, of which the kernel knows nothing.
    unsafe { Umem::registering(addresses, false, true) }
}

fn why(umem: &Umem) -> String {
    umem.packets().map(drop).unwrap_err()
}

#[test]
fn memory_is_the_tenants_whose_port_is_bound_first() {
    let buffer = Buffer::private(1 << 16);
    let umem = register(buffer.addresses()).unwrap();
    assert!(why(&umem).contains("no socket is bound"), "until then it is nobody's");
    umem.claim(Ok("alice")).unwrap();
    umem.claim(Ok("alice")).unwrap();
    assert_eq!(umem.packets().unwrap().tenant, "alice");
    assert_eq!(umem.packets().unwrap().addresses, buffer.addresses());
    assert_eq!(umem.claim(Ok("bob")), Err(Taken), "alice's P4 VM reads it");
    assert_eq!(umem.claim(Err("an uplink".into())), Err(Taken));
    assert_eq!(umem.packets().unwrap().tenant, "alice");
}

#[test]
fn memory_that_was_anybodys_is_never_a_tenants() {
    let buffer = Buffer::private(1 << 16);
    let umem = register(buffer.addresses()).unwrap();
    umem.claim(Err("an uplink".into())).unwrap();
    umem.claim(Ok("alice")).unwrap();
    assert_eq!(why(&umem), "an uplink", "the first socket's reason stays");
}

#[test]
fn memory_that_is_registered_twice_is_nobodys() {
    let buffer = Buffer::private(1 << 16);
    let (all, upper) = (buffer.addresses(), buffer.addresses().start + 4096..buffer.addresses().end);
    let first = register(all.clone()).unwrap();
    let second = register(upper).unwrap();
    for umem in [&first, &second] {
        umem.claim(Ok("alice")).unwrap();
        assert!(why(umem).contains("more than once"));
    }
    // The kernel has the first one's pages on the second's behalf, too: they must stay.
    let shared = Arc::downgrade(&first);
    drop(first);
    assert!(shared.upgrade().is_some());
    drop(second);
    assert!(shared.upgrade().is_none());

    let first = register(all.clone()).unwrap();
    first.claim(Ok("alice")).unwrap();
    assert_eq!(register(all.clone()).unwrap_err(), Taken, "whose packets would come in is not known");
    assert_eq!(first.packets().unwrap().tenant, "alice");
    drop(first);
    register(all).unwrap().claim(Ok("bob")).unwrap();
}

#[test]
fn memory_that_nobody_wants_or_whose_chunks_begin_anywhere_is_left_alone() {
    let buffer = Buffer::private(1 << 16);
    for (unaligned, wanted, reason) in [(false, false, "no port"), (true, true, "begin anywhere")] {
        // SAFETY: as in `register`.
        let umem = unsafe { Umem::registering(buffer.addresses(), unaligned, wanted) }.unwrap();
        assert!(why(&umem).contains(reason), "{}", why(&umem));
        assert!(umem.shared.is_none());
    }
}

#[test]
fn memory_that_the_system_does_not_give_is_copied_and_the_reason_is_told() {
    let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
    let umem = Umem::of(0..4096, Err(Unfit::System { what: "make shared memory", source }), Vec::new());
    umem.claim(Ok("alice")).unwrap();
    umem.claim(Ok("bob")).unwrap();
    assert!(why(&umem).starts_with("cannot make shared memory: No space left"), "{}", why(&umem));
}
