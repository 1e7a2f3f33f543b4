//! Programs as eBPF objects, files that a user names.

use std::path::{Path, PathBuf};

use p4shield_bpf::{Linked, Object, link};
use p4shield_console::{Refused, input};

/// Reads and links the objects at these paths.
///
/// # Errors
/// A file cannot be read, is no object, or does not fit the others.
pub fn load(paths: &[PathBuf]) -> anyhow::Result<Linked> {
    let objects = paths.iter().map(|p| read(p)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(link(&objects).map_err(|e| Refused::because(&e))?)
}

/// Reads the object at a path, whose errors then name the path.
///
/// # Errors
/// The file cannot be read, or is no object.
pub fn read(path: &Path) -> anyhow::Result<Object> {
    let bytes = input::bytes(path)?;
    let name = path.display().to_string();
    let object = Object::parse(&bytes).map_err(|e| Refused::because(&e).of(&name))?;
    Ok(object.named(&name))
}
