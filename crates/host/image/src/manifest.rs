//! What an image consists of.

use crate::COMMAND_LINE;
use crate::error::{ImageError, Operation};
use crate::kind::ImageKind;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Name of the manifest in an image's folder.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Name of the kernel.
pub(crate) const KERNEL: &str = "vmlinuz";
/// Name of the initial file system.
pub(crate) const INITRAMFS: &str = "initramfs";

/// What an image consists of. Digests are SHA-256 in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Digest of kernel, initial file system and command line: one name for the whole image.
    pub image: String,
    /// Digest of the kernel.
    pub kernel: String,
    /// Digest of the initial file system.
    pub initramfs: String,
    /// Digest of the P4 VM's program in it.
    pub program: String,
    /// The kernel's command line.
    pub command_line: String,
    /// The kernel modules in the initial file system, which an image of a switch has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// The paths of the host's files in it, which an image of a tenant's switch has: Open vSwitch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

/// The parts of an image beside its program.
pub(crate) struct Contents {
    /// Its kernel modules.
    pub(crate) modules: Vec<String>,
    /// The paths of the host's files.
    pub(crate) files: Vec<String>,
}

impl Manifest {
    /// Returns the manifest of an image.
    pub(crate) fn new(kernel: &[u8], initramfs: &[u8], program: &[u8], contents: Contents) -> Self {
        let Contents { modules, files } = contents;
        let digests = [kernel, initramfs, COMMAND_LINE.as_bytes()].map(Sha256::digest);
        let image = hex::encode(Sha256::digest(digests.concat()));
        Self {
            image,
            kernel: hex::encode(digests[0]),
            initramfs: hex::encode(digests[1]),
            program: hex::encode(Sha256::digest(program)),
            command_line: COMMAND_LINE.to_owned(),
            modules,
            files,
        }
    }

    fn kind(&self) -> ImageKind {
        match (self.modules.is_empty(), self.files.is_empty()) {
            (_, false) => ImageKind::TenantSwitch,
            (true, true) => ImageKind::P4Vm,
            (false, true) => ImageKind::Switch,
        }
    }
}

/// An image on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initial file system.
    pub initramfs: PathBuf,
    /// What it consists of.
    pub manifest: Manifest,
}

impl Image {
    /// Opens the image for machines of a kind in a folder, and compares its files with the manifest.
    ///
    /// # Errors
    /// There is none, or a file is another; or it is for machines of another kind.
    pub fn of_kind(folder: &Path, due: ImageKind) -> Result<Self, ImageError> {
        let image = Self::open(folder)?;
        let is = image.manifest.kind();
        if is != due {
            let folder = folder.to_owned();
            return Err(ImageError::OtherKind { folder, is, due, option: due.option() });
        }
        Ok(image)
    }

    /// Opens the image in a folder and compares its files with the manifest.
    ///
    /// # Errors
    /// There is none, or a file is another.
    pub fn open(folder: &Path) -> Result<Self, ImageError> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read(&path).map_err(ImageError::file(Operation::Read, &path))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|source| ImageError::Manifest { path, source })?;
        let image = Self { kernel: folder.join(KERNEL), initramfs: folder.join(INITRAMFS), manifest };
        for (path, digest) in
            [(&image.kernel, &image.manifest.kernel), (&image.initramfs, &image.manifest.initramfs)]
        {
            let bytes = std::fs::read(path).map_err(ImageError::file(Operation::Read, path))?;
            if hex::encode(Sha256::digest(&bytes)) != *digest {
                return Err(ImageError::Changed { path: path.clone() });
            }
        }
        Ok(image)
    }
}
