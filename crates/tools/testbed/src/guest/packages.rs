//! Debian packages in a guest: what its `dpkg` needs to install them, with the libraries of the packages that
//! they depend on, and no other ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::image::{needed_libraries, read};
use crate::process::run;
use crate::{Error, Result};

/// Files of a guest by path.
pub(super) type Files = Vec<(String, Vec<u8>)>;

/// A Debian package as a file's name and contents.
pub(super) type Package = (String, Vec<u8>);

/// Returns the files that let the guest install `packages`: these, the records of the installed packages that
/// they depend on, and their libraries. `work` is a folder for what this writes meanwhile.
pub(super) fn files(packages: &[Package], work: &Path) -> Result<Files> {
    let mut files = Files::new();
    let (mut wanted, mut programs) = (Vec::new(), Vec::new());
    for (name, bytes) in packages {
        let (deb, contents) = (work.join(name), work.join(format!("{name}.d")));
        fs::write(&deb, bytes).map_err(Error::system(format!("write {}", deb.display())))?;
        run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&contents))?;
        programs.extend(fs::read_dir(contents.join("usr/bin")).into_iter().flatten().flatten());
        wanted.extend(names(&run(Command::new("dpkg-deb").arg("-f").arg(&deb).arg("Depends"))?));
        files.push((format!("packages/{name}"), bytes.clone()));
    }
    let depended = installed(wanted);
    if depended.is_empty() {
        let why = "they depend on no package that is installed here, not even on the C library's";
        return Err(Error::failed("taking packages into a guest", why));
    }
    let mut libraries = BTreeMap::new();
    let permitted = libraries_of(&depended)?;
    for program in programs {
        for library in needed_libraries(&program.path())? {
            if library.canonicalize().is_ok_and(|path| permitted.contains(&path)) {
                let data = fs::read(&library).map_err(read(library.display()))?;
                libraries.insert(library.display().to_string(), data);
            }
        }
    }
    files.extend(libraries);
    let records = run(Command::new("dpkg-query").arg("-s").args(&depended))?;
    files.push(("var/lib/dpkg/status".into(), records.into_bytes()));
    Ok(files)
}

/// Returns the line that installs them in the guest. Busybox's dpkg calls maintainer scripts without the
/// arguments that Debian's policy demands, with which they do nothing; so they run once more, in this order.
pub(super) fn install_line(packages: &[Package]) -> String {
    let unpack = "mkdir -p /var/lib/dpkg/info && dpkg -i /packages/*.deb && rm -r /packages".to_owned();
    let scripts = packages.iter().filter_map(|(file, _)| file.split('_').next()).map(|name| {
        let script = format!("/var/lib/dpkg/info/{name}.postinst");
        format!("{{ [ ! -e {script} ] || {script} configure ''; }}")
    });
    std::iter::once(unpack).chain(scripts).collect::<Vec<_>>().join(" && ")
}

/// Returns the names in a `Depends` field, of alternatives the first one.
fn names(field: &str) -> Vec<String> {
    let first =
        |clause: &str| clause.split([' ', '|', ':', '(']).find(|word| !word.is_empty()).map(str::to_owned);
    field.trim().split(',').filter_map(first).collect()
}

/// Returns those of these packages that are installed on this machine, and what they depend on.
fn installed(mut wanted: Vec<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if found.contains(&name) {
            continue;
        }
        // A package among the new ones, or a virtual one.
        let mut query = Command::new("dpkg-query");
        let Ok(depends) = run(query.args(["-W", "-f", "${Depends}\n", &name])) else { continue };
        // The records of several architectures are alike.
        wanted.extend(names(depends.lines().next().unwrap_or_default()));
        found.insert(name);
    }
    found
}

/// Returns the paths of all shared libraries in these packages, without links.
fn libraries_of(packages: &BTreeSet<String>) -> Result<BTreeSet<PathBuf>> {
    let listed = run(Command::new("dpkg-query").arg("-L").args(packages))?;
    let libraries = listed.lines().filter(|path| path.contains(".so"));
    Ok(libraries.filter_map(|path| Path::new(path).canonicalize().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depends_field_names_packages() {
        let field = "libc6 (>= 2.34), libelf1t64 | libelf1 (>= 0.144), python3:any, a(= 1)\n";
        assert_eq!(names(field), ["libc6", "libelf1t64", "python3", "a"]);
        assert_eq!(names("\n"), Vec::<String>::new());
    }

    #[test]
    fn scripts_run_in_the_order_of_the_packages() {
        let line = install_line(&[("b_1_amd64.deb".into(), vec![]), ("a_1_amd64.deb".into(), vec![])]);
        let at = |text| line.find(text).unwrap();
        assert!(at("b.postinst configure") < at("a.postinst configure"), "{line}");
    }
}
