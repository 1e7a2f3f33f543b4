//! The figures of `p4shield-dev bench mediator` from a small binary, which builds quickly and runs under
//! `perf` or `callgrind`.
//!
//! `cargo run --release -p p4shield-bench --example mediator -- [same-core|p4vm|inline] [BURST]`

use p4shield_bench::mediator::{Backend, Options, run};

#[expect(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options { bursts: vec![32], ..Options::default() };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "same-core" => options.backends = vec![Backend::SameCore],
            "p4vm" => options.backends = vec![Backend::P4vm],
            "inline" => options.backends = vec![Backend::Inline],
            burst => options.bursts = vec![burst.parse()?],
        }
    }
    for r in run(&options, |_, _, _, _| ())? {
        println!(
            "{:<11} {:<20} burst {:>3} header {:>4}: submit {:>6.1} poll {:>6.1} \
             quiet {:>6.1} ns, {:>6.2} Mpackets/s",
            r.backend.name(),
            r.case.name(),
            r.burst,
            r.header_bytes,
            r.submit_ns,
            r.poll_ns,
            r.quiet_ns,
            r.mpps
        );
    }
    Ok(())
}
