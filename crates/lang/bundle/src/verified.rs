//! Bundles whose signature was verified.

use crate::contents::{BundledProgram, Contents};
use crate::error::{BundleError, Reason};
use crate::format::Frame;
use crate::key::{KeyId, PublicKey};
use crate::summary::Summary;

/// A bundle that the pinned key has signed. [`Bundle::open`] alone makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    contents: Contents,
    key: PublicKey,
}

impl Bundle {
    /// Verifies a file with the pinned key, then decodes it. Entry point of fuzzing.
    ///
    /// # Errors
    /// The file is no bundle, is signed with another key, was changed, or its contents exceed a limit.
    pub fn open(bytes: &[u8], key: &PublicKey) -> Result<Self, BundleError> {
        let frame = Frame::parse(bytes)?;
        if frame.key != key.to_bytes() {
            return Err(BundleError::WrongKey { expected: key.id(), found: KeyId::of(&frame.key) });
        }
        Ok(Self { contents: verified_contents(&frame, key)?, key: *key })
    }

    /// Returns the contents if they are for this VM and not older than `floor`.
    ///
    /// # Errors
    /// The bundle is for another tenant or VM, or too old.
    pub fn for_vm(&self, tenant: &str, vm: &str, floor: u64) -> Result<&Contents, BundleError> {
        self.check_owner(tenant, vm)?;
        let version = self.contents.version;
        if version < floor {
            return Err(BundleError::TooOld { version, floor });
        }
        Ok(&self.contents)
    }

    /// Checks that the bundle is for this VM.
    ///
    /// # Errors
    /// It is for another tenant or VM.
    pub fn check_owner(&self, tenant: &str, vm: &str) -> Result<(), BundleError> {
        let Contents { tenant: its_tenant, vm: its_vm, .. } = &self.contents;
        if its_tenant != tenant {
            return Err(BundleError::OtherTenant { expected: tenant.to_owned(), found: its_tenant.clone() });
        }
        match its_vm {
            Some(its_vm) if its_vm != vm => {
                Err(BundleError::OtherVm { expected: vm.to_owned(), found: its_vm.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns the contents, whatever VM they are for.
    #[must_use]
    pub const fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Returns the key that has signed it.
    #[must_use]
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Returns what it contains. `link` returns the digest of the linked program, or why its objects do not
    /// link.
    pub fn summary(&self, link: impl Fn(&BundledProgram) -> Result<[u8; 32], String>) -> Summary {
        Summary::new(&self.contents, &self.key, true, link)
    }
}

/// A bundle whose signature is its named signer's, where the reader has no key to compare the signer with. A
/// stranger may have signed it: it offers no program, only a summary.
#[derive(Debug)]
pub struct Unpinned {
    contents: Contents,
    key: PublicKey,
}

impl Unpinned {
    /// Verifies a file with the key that it names, then decodes it.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn open(bytes: &[u8]) -> Result<Self, BundleError> {
        let frame = Frame::parse(bytes)?;
        let key = PublicKey::from_bytes(&frame.key).map_err(|_| BundleError::InvalidKey)?;
        Ok(Self { contents: verified_contents(&frame, &key)?, key })
    }

    /// Returns what the bundle contains, marked as not verified. `link` as for [`Bundle::summary`].
    pub fn summary(&self, link: impl Fn(&BundledProgram) -> Result<[u8; 32], String>) -> Summary {
        Summary::new(&self.contents, &self.key, false, link)
    }
}

fn verified_contents(frame: &Frame<'_>, key: &PublicKey) -> Result<Contents, BundleError> {
    if !key.has_signed(&frame.message(), &frame.signature) {
        return Err(BundleError::Changed);
    }
    let Ok((contents, [])) = postcard::take_from_bytes::<Contents>(frame.contents) else {
        return Err(Reason::Encoding.into());
    };
    if postcard::to_stdvec(&contents).ok().as_deref() != Some(frame.contents) {
        return Err(Reason::NotCanonical.into());
    }
    contents.check()?;
    Ok(contents)
}
