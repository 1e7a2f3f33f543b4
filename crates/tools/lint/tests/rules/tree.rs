//! The source tree: its folders, files and crates.

use std::path::{Path, PathBuf};

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.canonicalize().expect("the repository is there")
}

/// Every file below `folder` whose name ends in `suffix`, sorted. Build output and hidden folders are
/// skipped.
pub(crate) fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("the entry can be read").path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    /// Its package's name without the prefix `p4shield-`.
    pub(crate) name: String,
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Crates of the workspace that it depends on, without the prefix; tests and build scripts left out.
    pub(crate) dependencies: Vec<String>,
}

impl Crate {
    /// Name of its folder.
    pub(crate) fn folder_name(&self) -> &str {
        self.folder.file_name().and_then(|n| n.to_str()).expect("a folder has a name")
    }

    /// Name of the folder that its folder is in.
    pub(crate) fn group(&self) -> &str {
        self.folder.parent().and_then(|p| p.file_name()?.to_str()).expect("a crate is in a group")
    }

    /// Group and folder: `base/abi`.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.group(), self.folder_name())
    }
}

/// The crates of the workspace, sorted by folder.
pub(crate) fn crates() -> Vec<Crate> {
    let short = |name: &str| name.strip_prefix("p4shield-").unwrap_or(name).to_owned();
    let read = |manifest: PathBuf| {
        let table: toml::Table = read(&manifest).parse().expect("a manifest is TOML");
        let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
        Crate {
            name: short(table["package"]["name"].as_str().expect("a package has a name")),
            folder: manifest.parent().expect("a file is in a folder").to_owned(),
            dependencies: dependencies
                .into_iter()
                .flat_map(toml::Table::keys)
                .filter(|name| name.starts_with("p4shield"))
                .map(|name| short(name))
                .collect(),
        }
    };
    files(&root().join("crates"), "Cargo.toml").into_iter().map(read).collect()
}

/// Text of a file.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A path as findings show it: relative to the root.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
