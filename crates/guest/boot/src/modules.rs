//! Kernel modules of an image.

use crate::BootError;
use std::fs::File;
use std::io;
use std::path::Path;

/// The folder of the modules: each is a file, and their names are in the order in which they are loaded.
pub const MODULES: &str = "/modules";

/// Loads the modules of the image. One that the kernel has already is none too many.
///
/// # Errors
/// A module cannot be read, or is another kernel's.
pub fn load_modules() -> Result<(), BootError> {
    let folder = Path::new(MODULES);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| BootError::Module { path, source }
    };
    let files = std::fs::read_dir(folder).map_err(failed(folder))?;
    let files = files.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>();
    let mut files = files.map_err(failed(folder))?;
    files.sort();
    for path in &files {
        let file = File::open(path).map_err(failed(path))?;
        match rustix::system::finit_module(&file, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(failed(path)(e.into())),
        }
    }
    Ok(())
}
