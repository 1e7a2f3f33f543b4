//! The tenants' programs: one that looks at each packet and lets it through, and one whose function in C goes
//! on until the budget is spent.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use p4shield_testbed::process::{find, product, run};

/// The objects of the program that lets all through.
pub(super) const PASS: [&str; 1] = ["pass.o"];
/// The objects of the program that burns its budget for each packet of UDP.
pub(super) const BURN: [&str; 2] = ["burn.o", "burn_function.o"];

/// Compiles all objects into a folder.
pub(super) fn compile(folder: &Path) -> anyhow::Result<()> {
    let program = include_str!("burn.p4");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        anyhow::Ok(path)
    };
    let [pass, burn] = [write("pass.p4", program)?, write("burn.p4", program)?];
    let function = write("burn_function.c", include_str!("burn.c"))?;
    let compile = || product().map(Command::new);
    run(compile()?.arg("compile").arg(pass).arg("-o").arg(folder.join(PASS[0])))?;
    run(compile()?.args(["compile", "-D", "BURN=1"]).arg(burn).arg("-o").arg(folder.join(BURN[0])))?;
    let clang =
        find("clang").context("`clang` is missing; install Debian's package: apt-get install clang")?;
    let mut clang = Command::new(clang);
    clang.args(["-target", "bpf", "-O2", "-ffreestanding", "-c"]).arg(function);
    run(clang.arg("-o").arg(folder.join(BURN[1])))?;
    Ok(())
}
