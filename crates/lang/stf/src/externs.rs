//! Extern functions of tenants, written in C and compiled with clang.
//!
//! The C file includes the program's declarations ([`p4shield_p4::Compiled::c_header`]) as
//! `p4shield_program.h`. C files for p4c include `test.h`, which is provided, too: see `include/p4c.h`.

use std::path::Path;
use std::process::Command;

/// File name of the program's declarations.
const PROGRAM_HEADER: &str = "p4shield_program.h";
/// The header that C files for p4c include.
const P4C_HEADER: &str = include_str!("../include/p4c.h");

/// Reason why a C file cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExternError {
    /// clang cannot be run.
    #[error("cannot run {compiler}, which compiles C to eBPF: install clang, or set CLANG ({source})")]
    NoCompiler {
        /// Name of the compiler.
        compiler: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A file cannot be written or read.
    #[error("cannot compile {file}: {source}")]
    File {
        /// The C file.
        file: String,
        /// The cause.
        source: std::io::Error,
    },
    /// clang reports errors.
    #[error("cannot compile {file}:\n{messages}")]
    Refused {
        /// The C file.
        file: String,
        /// clang's messages.
        messages: String,
    },
}

/// Compiles a C file to an eBPF object. `header` is the program's C header.
///
/// # Errors
/// If the compiler or a file is missing, or the compiler reports errors.
pub fn compile(file: &Path, header: &str) -> Result<Vec<u8>, ExternError> {
    let failed = |source| ExternError::File { file: file.display().to_string(), source };
    let folder = tempfile::tempdir().map_err(failed)?;
    let object = folder.path().join("functions.o");
    std::fs::write(folder.path().join(PROGRAM_HEADER), header).map_err(failed)?;
    std::fs::write(folder.path().join("test.h"), P4C_HEADER).map_err(failed)?;
    let compiler = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut clang = Command::new(&compiler);
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-ffreestanding", "-I"]).arg(folder.path());
    let run = clang.arg("-c").arg(file).arg("-o").arg(&object).output();
    let run = run.map_err(|source| ExternError::NoCompiler { compiler, source })?;
    if !run.status.success() {
        let messages = String::from_utf8_lossy(&run.stderr).into_owned();
        return Err(ExternError::Refused { file: file.display().to_string(), messages });
    }
    std::fs::read(&object).map_err(failed)
}
