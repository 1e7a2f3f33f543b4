//! Checks every P4 file of a folder and counts what the compiler makes of it: `cargo run --release --example corpus --
//! FOLDER [INCLUDE FOLDER] [--list]`. With `--list` each file's first diagnostic is printed.
#![allow(clippy::print_stdout, reason = "it is what this example is for")]

use p4shield_p4::{Included, Options, Resolver, compile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

struct Files(Vec<PathBuf>);

impl Resolver for Files {
    fn resolve(&self, path: &str, _: bool, _: &str) -> Option<Included> {
        let found = self.0.iter().map(|f| f.join(path)).find(|p| p.is_file())?;
        Some(Included { name: path.to_owned(), text: std::fs::read_to_string(found).ok()? })
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list = args.iter().any(|a| a == "--list");
    let folders: Vec<PathBuf> = args.iter().filter(|a| *a != "--list").map(PathBuf::from).collect();
    let folder: &Path = folders.first().expect("usage: corpus FOLDER [INCLUDE FOLDER] [--list]");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "p4"));
    paths.sort();
    let (mut outcomes, mut slowest) = (BTreeMap::<String, usize>::new(), (0, String::new()));
    for p in &paths {
        let Ok(text) = std::fs::read_to_string(p) else { continue };
        let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let start = Instant::now();
        let result = compile(&name, &text, &Files(folders.clone()), &Options::default());
        slowest = slowest.max((start.elapsed().as_micros(), name.clone()));
        let outcome = match &result {
            Ok(_) => "compiled".to_owned(),
            Err(e) => {
                let first = e.items().iter().find(|d| d.code.is_error());
                if let (true, Some(p)) = (list, e.plain().iter().find(|p| p.error)) {
                    println!("{name}: {}: {}:{}: {}", p.code, p.line, p.column, p.message);
                }
                first.map_or("?", |d| d.code.as_str()).to_owned()
            }
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    println!("{} files: {outcomes:?}; slowest {} in {} us", paths.len(), slowest.1, slowest.0);
}
