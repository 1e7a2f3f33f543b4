//! Instruction counts of the reference compiler's uBPF programs, compared with p4c-ubpf and clang
//! -O2: `against_p4c TESTDATA`, where `TESTDATA` is p4c's `testdata` folder with `backends` and
//! `p4include` beside it.
//!
//! p4c's figures come from objects that p4c-ubpf of 2025 and clang 14 compiled from the same files.
#![allow(clippy::print_stdout, reason = "the example prints a table")]

use p4shield_p4::{Included, Options, Resolver, compile};
use std::path::{Path, PathBuf};

/// Instructions in p4c-ubpf's object, by the program's name in `p4_16_samples`, without `_ubpf`.
const THEIRS: [(&str, u32); 17] = [
    ("simple-firewall", 660),
    ("tcp_guard", 597),
    ("simple-actions", 492),
    ("tunneling", 446),
    ("ipv4-actions", 297),
    ("ubpf_hash_extern", 267),
    ("csum", 217),
    ("issue3483", 175),
    ("lpm", 175),
    ("parenthesis-test", 168),
    ("metadata", 100),
    ("default_action", 45),
    ("truncate", 31),
    ("hash", 23),
    ("advance", 21),
    ("action_call", 16),
    ("action_fwd", 16),
];

struct Files(Vec<PathBuf>);

impl Resolver for Files {
    fn resolve(&self, path: &str, _: bool, _: &str) -> Option<Included> {
        let found = self.0.iter().map(|f| f.join(path)).find(|p| p.is_file())?;
        Some(Included { name: path.to_owned(), text: std::fs::read_to_string(found).ok()? })
    }
}

/// Returns the program of a name: from the corpus, or from our own examples that p4c also compiles.
fn source(root: &Path, name: &str) -> Option<String> {
    let samples = root.join("p4_16_samples");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/programs");
    let places = [
        samples.join(format!("{name}_ubpf.p4")),
        samples.join(format!("{name}.p4")),
        own.join(format!("{name}.p4")),
    ];
    places.iter().find_map(|p| std::fs::read_to_string(p).ok())
}

fn main() {
    let root = std::env::args().nth(1).map(PathBuf::from).expect("usage: against_p4c TESTDATA");
    let files = Files(vec![root.join("p4_16_samples"), root.join("../p4include")]);
    println!("| program | ours | p4c-ubpf | theirs / ours |\n|---|---|---|---|");
    let mut ratios = Vec::new();
    for (name, theirs) in THEIRS {
        let Some(text) = source(&root, name) else {
            println!("| {name} | not in the folder | {theirs} | |");
            continue;
        };
        match compile(name, &text, &files, &Options::default()) {
            Ok(c) => {
                let ratio = f64::from(theirs) / c.facts.instructions as f64;
                ratios.push(ratio);
                println!("| {name} | {} | {theirs} | {ratio:.2} |", c.facts.instructions);
            }
            Err(_) => println!("| {name} | does not compile | {theirs} | |"),
        }
    }
    let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp();
    println!("\nGeometric mean over {} programs: {mean:.2} times fewer.", ratios.len());
}
