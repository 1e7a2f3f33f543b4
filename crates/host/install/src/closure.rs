//! A program with all libraries that it is linked with, as the dynamic linker finds them.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use crate::Root;
use crate::elf::{Elf, ElfError};

/// Most libraries that are read.
const MAX_LIBRARIES: usize = 512;
/// The dynamic linker's folders besides those of its configuration.
const DEFAULT_FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// A program and its libraries.
#[derive(Debug)]
pub(crate) struct Closure {
    /// The program itself.
    pub(crate) program: Elf,
    /// Its libraries by name; `None` for those not found.
    pub(crate) libraries: BTreeMap<String, Option<Elf>>,
}

impl Closure {
    /// Reads the program at `path` (as the host sees it) and all libraries that it needs.
    pub(crate) fn read(root: &Root, path: &Path) -> Result<Self, ElfError> {
        let path = root.resolve(path)?;
        let program = Elf::read(&root.locate(&path)?)?;
        let folders = folders(root);
        let mut libraries = BTreeMap::new();
        let mut left: VecDeque<_> = wants(&program, &path).into();
        while let Some((name, first)) = left.pop_front() {
            if libraries.contains_key(&name) || libraries.len() >= MAX_LIBRARIES {
                continue;
            }
            let candidates = first.iter().chain(&folders).map(|f| f.join(&name));
            let found = candidates.filter(|p| root.is_file(p)).find_map(|p| {
                let elf = Elf::read(&root.locate(&p).ok()?).ok()?;
                (elf.machine == program.machine).then_some((p, elf))
            });
            if let Some((at, elf)) = &found {
                left.extend(wants(elf, at));
            }
            libraries.insert(name, found.map(|(_, elf)| elf));
        }
        Ok(Self { program, libraries })
    }

    /// Returns whether there is a library whose name starts with `prefix`.
    pub(crate) fn has_library(&self, prefix: &str) -> bool {
        self.libraries.keys().any(|name| name.starts_with(prefix))
    }

    /// Returns whether the program or one of its libraries imports this function. Imports of DPDK's own
    /// libraries do not count, as they do not show what the switch's code calls.
    pub(crate) fn calls(&self, function: &str) -> bool {
        let own = self.libraries.iter().filter(|(name, _)| !name.starts_with("librte_"));
        self.program.imports(function) || own.filter_map(|(_, elf)| elf.as_ref()).any(|e| e.imports(function))
    }
}

/// Returns the libraries that a file needs, each with the file's own search folders.
fn wants(elf: &Elf, at: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let origin = at.parent().unwrap_or(Path::new("/")).display().to_string();
    let first = |path: &String| {
        let path = path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    let first: Vec<_> = elf.run_path.iter().filter_map(first).collect();
    elf.needed.iter().map(|name| (name.clone(), first.clone())).collect()
}

/// Returns the dynamic linker's folders: those of its configuration, then the default ones.
fn folders(root: &Root) -> Vec<PathBuf> {
    let drop_ins = root.names(Path::new("/etc/ld.so.conf.d"));
    let files = drop_ins.iter().filter(|n| n.ends_with(".conf"));
    let files = files.map(|n| Path::new("/etc/ld.so.conf.d").join(n)).chain(["/etc/ld.so.conf".into()]);
    let text: String = files.filter_map(|f| root.read(&f).ok()).map(|t| t + "\n").collect();
    let named = text.lines().map(str::trim).filter(|l| l.starts_with('/')).map(PathBuf::from);
    named.chain(DEFAULT_FOLDERS.map(PathBuf::from)).collect()
}
