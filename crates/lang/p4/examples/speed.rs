//! Compilation and verification times of programs: `cargo run --release --example speed --
//! X.p4...`. Medians of 201 compilations and of 5 verifications.
#![allow(clippy::print_stdout, reason = "the example prints its result")]

use p4shield_bpf::verify::{Limits, check};
use p4shield_bpf::{Object, link};
use p4shield_p4::{NoIncludes, Options, compile};
use std::time::Instant;

/// Returns the median run time of `f`, in milliseconds.
fn median(n: usize, mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..n)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[n / 2]
}

fn main() {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let build = || compile(&path, &text, &NoIncludes, &Options::default());
        let Ok(c) = build() else {
            println!("{path}: does not compile");
            continue;
        };
        let compiling = median(201, || drop(build()));
        let linked = link(&[Object::parse(&c.object).expect("a valid object")]);
        let verifying = linked.map(|l| median(5, || drop(check(&l, &Limits::default()))));
        let verifying =
            verifying.map_or_else(|_| "is not linked".to_owned(), |ms| format!("verify {ms:.1} ms"));
        let f = c.facts;
        println!(
            "{path}: {} instructions, {} on the longest path, compile {compiling:.2} ms, {verifying}",
            f.instructions, f.longest_path
        );
    }
}
