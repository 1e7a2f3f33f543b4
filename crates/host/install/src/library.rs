//! The library that the switch loads: its path, and whether a service that runs as root may load it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use p4shield_abi::inline;

use crate::closure::Closure;
use crate::elf::Elf;
use crate::finding::Finding;
use crate::{LIBRARY_FOLDER, PreloadedAttachment, Root, Target};

const CHECK: &str = "library";
/// Prefixes of installations, for another host's files and for an executable that is not installed.
const PREFIXES: [&str; 2] = ["/usr/local", "/usr"];

/// Returns the path of the library: in the executable's own installation, beside the executable itself (as
/// after `cargo build`), or else in a default installation.
pub fn find(root: &Root, kind: PreloadedAttachment) -> PathBuf {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok().filter(|_| root.is_host());
    let folder = own.as_deref().and_then(Path::parent);
    let beside = folder.map(|f| [f.parent().unwrap_or(f).join(LIBRARY_FOLDER), f.to_owned()]);
    let installed = PREFIXES.map(|p| Path::new(p).join(LIBRARY_FOLDER));
    let candidates = beside.into_iter().flatten().chain(installed.clone()).map(|f| f.join(kind.library()));
    let [default, _] = installed;
    candidates.into_iter().find(|p| root.is_file(p)).unwrap_or_else(|| default.join(kind.library()))
}

/// Checks the library at `path`.
pub(crate) fn check(
    root: &Root,
    kind: PreloadedAttachment,
    path: &Path,
    target: &Target,
    program: Option<&Closure>,
) -> Vec<Finding> {
    let shown = path.display();
    let text = path.to_string_lossy();
    if !path.is_absolute() || text.contains([' ', ':', '\t', '\n', '$']) {
        let what = format!("{shown} is invalid in LD_PRELOAD");
        return vec![Finding::problem(
            CHECK,
            what,
            "move it to an absolute path without blanks, `:` and `$`",
        )];
    }
    let elf = match root.locate(path).map_err(Into::into).and_then(|at| Elf::read(&at)) {
        Ok(elf) => elf,
        Err(error) => {
            let remedy = format!(
                "install it with `make install` or the package p4shield-{}, or name it with --library",
                kind.word()
            );
            return vec![Finding::problem(CHECK, format!("{shown} {error}"), remedy)];
        }
    };
    if !elf.movable || !elf.exports(kind.hook()) {
        let what = format!("{shown} is not P4 Shield's library for {}", kind.word());
        return vec![Finding::problem(CHECK, what, "name the right one with --library")];
    }
    if let Some(librte) = elf.needed.iter().find(|n| n.starts_with("librte_")) {
        // Scripts that start the switch preload the library, too; a shell must not load DPDK.
        let what = format!("{shown} is linked with {librte}; it must use the switch's DPDK");
        return vec![Finding::problem(CHECK, what, "build it with `make`")];
    }
    if program.is_some_and(|p| p.program.machine != elf.machine) {
        let what = format!("{shown} is for another machine type than the switch's program");
        return vec![Finding::problem(CHECK, what, "install P4 Shield for this machine type")];
    }
    let mut findings = vec![Finding::good(CHECK, format!("{shown}"))];
    if matches!(target, Target::Unit(_)) {
        findings.extend(writable(root, path).map(|place| {
            let what = format!(
                "{} can be written by users other than root, and the switch would load it",
                place.display()
            );
            Finding::problem(CHECK, what, "install it with `make install`, as root")
        }));
    }
    findings
}

/// Checks the library of placement `inline`, which the attachment's library loads from its own folder.
pub(crate) fn check_inline(root: &Root, attachment: &Path, target: &Target) -> Finding {
    let path = attachment.with_file_name(inline::LIBRARY);
    let shown = path.display();
    let elf = match root.locate(&path).map_err(Into::into).and_then(|at| Elf::read(&at)) {
        Ok(elf) => elf,
        Err(error) => {
            let what = format!("placement = \"inline\" needs {shown}, and it {error}");
            let remedy = "install it with `make install` or the package p4shield-inline, or write \
                          placement = \"p4vm\"";
            return Finding::problem(CHECK, what, remedy);
        }
    };
    let open = matches!(target, Target::Unit(_)).then(|| writable(root, &path)).flatten();
    match open {
        _ if !elf.movable || !elf.exports(&inline::ENTRY.to_string_lossy()) => {
            let what = format!("{shown} is not P4 Shield's library for placement = \"inline\"");
            Finding::problem(CHECK, what, "install it with `make install`")
        }
        Some(place) => {
            let what =
                format!("users other than root can write {}, and the switch would load it", place.display());
            Finding::problem(CHECK, what, "install it with `make install`, as root")
        }
        None => Finding::good(CHECK, format!("{shown}, for placement = \"inline\"")),
    }
}

/// Returns the first of the file and the folders above it that a user other than root may change.
fn writable(root: &Root, path: &Path) -> Option<PathBuf> {
    let real = root.resolve(path).ok()?;
    let open = |at: &&Path| {
        let Ok(meta) = root.locate(at).and_then(std::fs::metadata) else { return true };
        // In a sticky folder other users can add files but not replace them.
        let shared = meta.mode() & 0o022 != 0 && !(meta.is_dir() && meta.mode() & 0o1000 != 0);
        meta.uid() != 0 || shared
    };
    real.ancestors().filter(|at| at.parent().is_some()).find(open).map(Path::to_owned)
}
