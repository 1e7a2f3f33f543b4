//! Compiles the tap `src/bpf/tap.bpf.c` with its headers to `$OUT_DIR/tap.bpf.o`, which `src/tap/mod.rs`
//! embeds.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    const SOURCE: &str = "src/bpf/tap.bpf.c";
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("tap.bpf.o");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    // Debian stores <asm/types.h> in an architecture directory, which clang does not search for this target.
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let mut command = Command::new(&clang);
    command
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .args(["-c", SOURCE, "-o"])
        .arg(&out);
    let status = command.status().unwrap_or_else(|e| {
        panic!("cannot run {}: {e}; install clang, libbpf-dev and linux-libc-dev", clang.display())
    });
    assert!(status.success(), "clang cannot compile {SOURCE}: install libbpf-dev and linux-libc-dev");
}
