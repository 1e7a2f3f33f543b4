//! How an ELF file is linked.

use std::io::{self, Read};
use std::path::Path;

use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, ET_DYN, FileHeader64, PT_INTERP, SHT_DYNSYM};
use object::read::elf::{Dyn, ElfFile, FileHeader, ProgramHeader, Sym};

/// Longest file that is read, in bytes. Statically linked switches have about 100 MB.
const MAX_FILE: u64 = 1 << 30;

/// Reason why a file cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is not an ELF file, but a script, for example.
    #[error("is not an ELF file")]
    NotElf,
    /// It is for a machine with addresses of another size.
    #[error("is not a 64-bit ELF file")]
    Not64,
    /// It is damaged.
    #[error("is a damaged ELF file: {0}")]
    Damaged(#[from] object::read::Error),
}

/// How a program or library is linked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    /// Its machine (`e_machine`).
    pub(crate) machine: u16,
    /// Whether it is position-independent: a library or such a program.
    pub(crate) movable: bool,
    /// Whether the dynamic linker starts it (`PT_INTERP`); otherwise `LD_PRELOAD` has no effect on a program.
    pub(crate) interpreted: bool,
    /// Libraries that it needs (`DT_NEEDED`).
    pub(crate) needed: Vec<String>,
    /// Its search path for them (`DT_RUNPATH`, `DT_RPATH`), with `$ORIGIN` unexpanded.
    pub(crate) run_path: Vec<String>,
    /// Imported functions and data, without versions.
    pub(crate) imports: Vec<String>,
    /// Exported functions and data.
    pub(crate) exports: Vec<String>,
}

impl Elf {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, ElfError> {
        let file = std::fs::File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(ElfError::NotElf);
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut bytes)?;
        Self::parse(&bytes)
    }

    /// Parses a file's bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ElfError> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        if bytes.get(4) != Some(&2) {
            return Err(ElfError::Not64);
        }
        let file = ElfFile::<FileHeader64<Endianness>>::parse(bytes)?;
        let (endian, header) = (file.endian(), file.elf_header());
        let mut elf = Self {
            machine: header.e_machine(endian).0,
            movable: header.e_type(endian) == ET_DYN,
            interpreted: file.elf_program_headers().iter().any(|p| p.p_type(endian) == PT_INTERP),
            ..Self::default()
        };
        elf.read_dynamic(&file, bytes)?;
        Ok(elf)
    }

    fn read_dynamic(
        &mut self,
        file: &ElfFile<'_, FileHeader64<Endianness>>,
        bytes: &[u8],
    ) -> Result<(), ElfError> {
        let endian = file.endian();
        let sections = file.elf_section_table();
        if let Some((entries, link)) = sections.dynamic(endian, bytes)? {
            let strings = sections.strings(endian, bytes, link)?;
            for entry in entries {
                let text = || entry.string(endian, strings).map(|s| String::from_utf8_lossy(s).into_owned());
                if entry.is_string(endian) && entry.d_tag(endian) == DT_NEEDED {
                    self.needed.push(text()?);
                } else if [DT_RPATH, DT_RUNPATH].contains(&entry.d_tag(endian)) {
                    self.run_path.extend(text()?.split(':').map(str::to_owned));
                }
            }
        }
        let symbols = sections.symbols(endian, bytes, SHT_DYNSYM)?;
        for symbol in symbols.iter() {
            let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?).into_owned();
            let list = if symbol.is_undefined(endian) { &mut self.imports } else { &mut self.exports };
            if !name.is_empty() {
                list.push(name);
            }
        }
        Ok(())
    }

    /// Returns whether it imports this function.
    pub(crate) fn imports(&self, name: &str) -> bool {
        self.imports.iter().any(|n| n == name)
    }

    /// Returns whether it exports this function.
    pub(crate) fn exports(&self, name: &str) -> bool {
        self.exports.iter().any(|n| n == name)
    }
}

/// Returns whether the file contains DPDK's start-up code, which prints this text in all versions.
pub(crate) fn has_dpdk_inside(path: &Path) -> bool {
    let said = b"EAL: Detected";
    let bytes = std::fs::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut bytes).map(|_| bytes)
    });
    bytes.is_ok_and(|bytes| bytes.windows(said.len()).any(|w| w == said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_itself_is_dynamic() {
        let elf = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(elf.interpreted && elf.movable && elf.needed.iter().any(|n| n.starts_with("libc.so")));
        assert!(elf.imports("write") && !elf.imports("rte_eth_call_rx_callbacks"));
    }

    #[test]
    fn what_is_no_elf_file_says_so() {
        assert!(matches!(Elf::parse(b"#!/bin/sh\n"), Err(ElfError::NotElf)));
        assert!(matches!(Elf::parse(b"\x7fELF\x01"), Err(ElfError::Not64)));
        assert!(matches!(Elf::parse(b"\x7fELF\x02\x01\x01"), Err(ElfError::Damaged(_))));
        assert!(matches!(Elf::read(Path::new("/proc")), Err(ElfError::NotElf)));
    }

    #[test]
    fn a_damaged_file_is_no_reason_to_panic() {
        let whole = std::fs::read("/bin/true").unwrap();
        let mut at = 1;
        for _ in 0..400 {
            // Spread over the headers, then the tables.
            at = at * 31 % whole.len().max(1) + 1;
            let mut bytes = whole.clone();
            for byte in bytes.iter_mut().skip(if at % 2 == 0 { at % 1024 } else { at }).take(3) {
                *byte ^= 0x5a;
            }
            let _ = Elf::parse(&bytes);
            let _ = Elf::parse(&whole[..at.min(whole.len())]);
        }
    }
}
