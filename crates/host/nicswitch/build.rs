//! Compiles the programs of the NIC switch with clang.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    for hook in ["xdp", "tc"] {
        let source = format!("src/bpf/{hook}.bpf.c");
        compile(Path::new(&source), &out.join(hook).with_extension("bpf.o"), &arch);
    }
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
}

fn compile(source: &Path, object: &Path, arch: &str) {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let mut command = Command::new(&clang);
    command.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // Debian and Ubuntu keep <asm/types.h>, which <linux/bpf.h> includes, in a folder for the
    // architecture.
    command.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    let status = command.arg("-c").arg(source).arg("-o").arg(object).status().unwrap_or_else(|e| {
        panic!("cannot run `{clang}`, which compiles the NIC switch (scripts/setup.sh installs it): {e}")
    });
    assert!(
        status.success(),
        "`{clang}` could not compile {} (are libbpf-dev and linux-libc-dev installed?)",
        source.display()
    );
}
