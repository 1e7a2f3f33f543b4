//! Compiles a program and prints its assembly, IR, facts and diagnostics:
//! `cargo run --example emit -- X.p4 [out.o]`.
#![allow(clippy::print_stdout, reason = "the example prints its result")]

use p4shield_p4::{NoIncludes, Options, compile};

fn main() {
    let path = std::env::args().nth(1).expect("usage: emit X.p4 [out.o]");
    let text = std::fs::read_to_string(&path).expect("a readable file");
    match compile(&path, &text, &NoIncludes, &Options::default()) {
        Ok(c) => {
            println!("{}{}\n{}\n{:#?}", c.warnings.render(false), c.ir, c.asm, c.facts);
            if let Some(out) = std::env::args().nth(2) {
                std::fs::write(out, &c.object).expect("a writable file");
            }
        }
        Err(e) => println!("{}", e.render(false)),
    }
}
