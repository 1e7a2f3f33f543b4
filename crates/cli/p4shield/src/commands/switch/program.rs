//! The program of a switch: its objects, and how they are loaded.

use std::path::PathBuf;

use p4shield_abi::schema::{Architecture, Schema};
use p4shield_bpf::{EngineOptions, Object, Program, link};
use p4shield_console::{Refused, input};
use p4shield_p4::{Options, compile};
use p4shield_p4switch::Loaded;
use p4shield_stf::conformance::Folders;
use p4shield_switch::Traits;
use p4shield_tables::Described;

use crate::commands::{compile as compiler, verify};

/// A program's files.
#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// The program: P4 source (.p4), or an object that `p4shield compile` made
    program: PathBuf,
    /// Objects with the C functions that it calls
    externs: Vec<PathBuf>,
    /// Folder that #include searches after the program's own; may be repeated
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    include: Vec<PathBuf>,
}

impl Source {
    /// Returns the name of the program's file.
    pub(super) fn name(&self) -> String {
        self.program.display().to_string()
    }

    /// Returns the objects, the program's own first; `None` if its source has errors, which are reported.
    pub(super) fn objects(&self) -> anyhow::Result<Option<Vec<Vec<u8>>>> {
        let Some(own) = self.own_object()? else { return Ok(None) };
        let externs = self.externs.iter().map(|path| input::bytes(path));
        std::iter::once(Ok(own)).chain(externs).collect::<anyhow::Result<Vec<_>>>().map(Some)
    }

    fn own_object(&self) -> anyhow::Result<Option<Vec<u8>>> {
        if self.program.extension().is_none_or(|e| e != "p4") {
            return Ok(Some(input::bytes(&self.program)?));
        }
        let text = input::text(&self.program, "P4 source")?;
        match compile(&self.name(), &text, &Folders(self.include.clone()), &Options::default()) {
            Ok(compiled) => {
                compiler::report(&compiled.warnings);
                Ok(Some(compiled.object))
            }
            Err(errors) => compiler::refuse(&errors).map(|_| None),
        }
    }
}

/// Parses objects, whose errors name the program's file.
pub(super) fn parse(name: &str, objects: &[Vec<u8>]) -> Result<Vec<Object>, Refused> {
    let parse = |bytes: &Vec<u8>| Object::parse(bytes).map_err(|e| Refused::because(&e).of(name));
    objects.iter().map(|bytes| parse(bytes).map(|object| object.named(name))).collect()
}

/// Links, verifies and compiles a program's objects.
pub(super) fn load(name: &str, objects: &[Object]) -> anyhow::Result<Loaded> {
    let own = objects.first();
    let schema = own.and_then(Object::schema).map(Schema::decode);
    let (divided, reads_queues) = own.map_or((false, false), |o| (o.is_divided(), o.reads_queues()));
    let linked = link(objects).map_err(|e| Refused::because(&e))?;
    let maps = linked.maps.iter().map(|m| (m.name.clone(), m.definition)).collect();
    let verified = verify::prove(linked)?;
    let program = Program::load(&verified, &EngineOptions::default());
    let program = program.map_err(|e| Refused::because(&e))?;
    let architecture = schema.as_ref().and_then(|s| s.as_ref().ok()).map(|s| s.architecture);
    let described = Described { program: *program.digest(), maps, schema };
    // A program of C code alone names no port.
    let traits = Traits { architecture: architecture.unwrap_or(Architecture::Ebpf), divided, reads_queues };
    Ok(Loaded { name: name.to_owned(), program, described, traits })
}
