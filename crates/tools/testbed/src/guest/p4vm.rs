//! The image of P4 VMs in virtual machines.

use std::path::PathBuf;
use std::process::Command;

use p4shield_image::build;

use super::image::{Kernel, cache};
use crate::process::{forget_cargo, run};
use crate::{Error, Result};

/// Builds the static program, which is quick if it is built already. Returns its path below cargo's
/// target folder.
///
/// # Errors
/// It does not build.
pub fn p4vm_program() -> Result<PathBuf> {
    let folder = cache()?.with_file_name("p4vm");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/p4vm.sh");
    let mut command = Command::new(script);
    run(forget_cargo(&mut command).arg(&folder))?;
    Ok(folder.join("p4vm"))
}

/// Builds the image with the distribution's kernel. Returns its folder.
///
/// # Errors
/// The program does not build, or the kernel cannot be fetched.
pub fn p4vm_image() -> Result<PathBuf> {
    let program = p4vm_program()?;
    let image = program.with_file_name("image");
    build(&program, &Kernel::get()?.image(), &image)
        .map_err(|e| Error::failed("p4shield image build", e.to_string()))?;
    Ok(image)
}
