//! The static programs of virtual machines, and the images of P4 VMs, P4 switches and tenants' switches.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use p4shield_image::{ImageError, build, build_switch, build_tenant_switch};

use super::image::{Kernel, cache};
use crate::process::{forget_cargo, run};
use crate::{Error, Result};

/// Builds the static program of P4 VMs, which is quick if it is built already. Returns its path below
/// cargo's target folder.
///
/// # Errors
/// It does not build.
pub fn p4vm_program() -> Result<PathBuf> {
    program("p4vm")
}

/// As [`p4vm_program`], for user VMs: agent and auditor.
///
/// # Errors
/// It does not build.
pub fn uservm_program() -> Result<PathBuf> {
    program("uservm")
}

/// As [`p4vm_program`], for P4 switches.
///
/// # Errors
/// It does not build.
pub fn switch_program() -> Result<PathBuf> {
    program("switchvm")
}

/// As [`p4vm_program`], for tenants' switches.
///
/// # Errors
/// It does not build.
pub fn tenant_switch_program() -> Result<PathBuf> {
    program("tenantvm")
}

fn program(name: &str) -> Result<PathBuf> {
    let folder = cache()?.with_file_name("p4vm");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/static.sh");
    let mut command = Command::new(script);
    run(forget_cargo(&mut command).arg(name).arg(&folder))?;
    Ok(folder.join(name))
}

/// Builds the image of P4 VMs with the distribution's kernel. Returns its folder.
///
/// # Errors
/// The program does not build, or the kernel cannot be fetched.
pub fn p4vm_image() -> Result<PathBuf> {
    let program = p4vm_program()?;
    let image = program.with_file_name("image");
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    build(&program, &Kernel::get()?.image(), &image).map_err(failed)?;
    Ok(image)
}

/// As [`p4vm_image`], for P4 switches.
///
/// # Errors
/// The program does not build, or the kernel cannot be fetched.
pub fn switch_image() -> Result<PathBuf> {
    let (program, kernel) = (switch_program()?, Kernel::get()?);
    let image = program.with_file_name("switch-image");
    let modules = kernel.module_folder()?;
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    build_switch(&program, &kernel.image(), Some(&modules), &image).map_err(failed)?;
    Ok(image)
}

/// As [`p4vm_image`], for tenants' switches, with this host's Open vSwitch.
///
/// # Errors
/// As [`switch_image`]; or Open vSwitch is missing.
pub fn tenant_switch_image() -> Result<PathBuf> {
    let (program, kernel) = (tenant_switch_program()?, Kernel::get()?);
    let image = program.with_file_name("tenant-switch-image");
    let modules = kernel.module_folder()?;
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    build_tenant_switch(&program, &kernel.image(), Some(&modules), &image).map_err(failed)?;
    Ok(image)
}

/// Held while an image is built: threads of one process would replace each other's files.
static BUILDING: Mutex<()> = Mutex::new(());

fn failed(error: ImageError) -> Error {
    Error::failed("p4shield image build", error.to_string())
}
