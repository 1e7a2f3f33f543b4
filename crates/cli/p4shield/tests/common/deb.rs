//! The Debian packages of what cargo built for the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use p4shield_testbed::guest::{p4vm_program, switch_program, tenant_switch_program};
use p4shield_testbed::process::{find, run};

/// Returns the reason if this machine cannot build packages, or lacks one of these commands.
pub(crate) fn cannot_build(commands: &[&str]) -> Option<String> {
    let needed = ["dpkg-deb", "dpkg-shlibdeps", "dpkg-gencontrol"];
    let missing = needed.iter().chain(commands).find(|command| find(command).is_none());
    missing.map(|command| format!("the command {command} is missing"))
}

/// Puts binary, libraries and the programs of virtual machines into a new folder `built` in `folder`, where
/// `scripts/install.sh` expects them. Returns its path.
pub(crate) fn built(folder: &Path) -> PathBuf {
    let built = folder.join("built");
    std::fs::create_dir(&built).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_p4shield"), built.join("p4shield")).unwrap();
    for library in ["dpdk", "xsk", "inline", "ethdev"].map(|name| format!("libp4shield_{name}.so")) {
        let path = std::env::current_exe().unwrap().with_file_name(&library);
        std::fs::copy(path, built.join(&library)).unwrap();
    }
    std::fs::create_dir(built.join("static")).unwrap();
    std::fs::copy(p4vm_program().unwrap(), built.join("static/p4vm")).unwrap();
    std::fs::copy(switch_program().unwrap(), built.join("static/switchvm")).unwrap();
    std::fs::copy(tenant_switch_program().unwrap(), built.join("static/tenantvm")).unwrap();
    built
}

/// Builds the packages in `folder`. Returns their paths.
pub(crate) fn build(folder: &Path) -> Vec<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/deb.sh");
    let mut command = Command::new(script);
    // Compression of unoptimised code would be most of the test.
    command.arg(built(folder)).arg(folder.join("packages")).env("DEB_COMPRESSION", "none");
    let said = run(&mut command).unwrap();
    said.lines().filter(|line| line.ends_with(".deb")).map(PathBuf::from).collect()
}
