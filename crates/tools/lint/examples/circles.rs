//! Prints the circles of the crates in the folders that the command line names.
#![allow(clippy::print_stdout)]

use p4shield_lint::circles::{circles, links};
use std::path::Path;

fn main() {
    for folder in std::env::args().skip(1) {
        let folder = Path::new(&folder);
        for circle in circles(folder) {
            println!("{}: {}", folder.display(), circle.join(", "));
            links(folder, &circle).iter().for_each(|l| println!("    {l}"));
        }
    }
}
