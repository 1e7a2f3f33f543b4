//! The program of a switch: its objects, and how they are loaded.

use std::path::PathBuf;

use p4shield_bpf::Object;
use p4shield_console::{Refused, input};
use p4shield_p4::{Compiled, Options, Placement, compile};
use p4shield_p4switch::Loaded;
use p4shield_stf::conformance::Folders;
use p4shield_stf::externs;

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
    /// C file with functions that the program calls, compiled with clang; it includes "p4shield_program.h";
    /// may be repeated
    #[arg(long, value_name = "FILE.c")]
    functions: Vec<PathBuf>,
}

impl Source {
    /// Returns the name of the program's file.
    pub(super) fn name(&self) -> String {
        self.program.display().to_string()
    }

    /// Returns true for P4 source, false for an object.
    pub(super) fn is_p4(&self) -> bool {
        self.program.extension().is_some_and(|e| e == "p4")
    }

    /// Returns the objects, the program's own first; `None` if its source has errors, which are reported.
    pub(super) fn objects(&self, placement: Placement) -> anyhow::Result<Option<Objects>> {
        let mut externs =
            self.externs.iter().map(|path| input::bytes(path)).collect::<anyhow::Result<Vec<_>>>()?;
        let Some(own) = self.own(placement)? else { return Ok(None) };
        let Own { object, traced, c_header, functions, longest_message } = own;
        let mut in_c = Vec::new();
        for file in &self.functions {
            in_c.push(externs::compile(file, &c_header).map_err(|e| Refused(e.to_string()))?);
        }
        let functions = functions.map(|own| std::iter::once(own).chain(in_c.iter().cloned()).collect());
        if functions.is_none() {
            externs.extend(in_c);
        }
        let with = |own| std::iter::once(own).chain(externs.iter().cloned()).collect();
        Ok(Some(Objects { traced: traced.map(with), own: with(object), functions, longest_message }))
    }

    fn own(&self, placement: Placement) -> anyhow::Result<Option<Own>> {
        if !self.is_p4() {
            if !self.functions.is_empty() || placement == Placement::Extern {
                let why = "functions in C and placement extern need the program as P4 source";
                return Err(Refused(why.into()).into());
            }
            let why = "the switch has the program as an object; start it with the P4 source to trace packets";
            let (object, traced) = (input::bytes(&self.program)?, Err(why.to_owned()));
            let c_header = String::new();
            return Ok(Some(Own { object, traced, c_header, functions: None, longest_message: 0 }));
        }
        let text = input::text(&self.program, "P4 source")?;
        let compiled = |trace| {
            let options = Options { trace, placement, ..Options::default() };
            compile(&self.name(), &text, &Folders(self.include.clone()), &options)
        };
        match compiled(false) {
            Ok(plain) => {
                compiler::report(&plain.warnings);
                let too_long = |_| "the program cannot be traced: it is too long then".to_owned();
                let traced = compiled(true).map(|c| c.object).map_err(too_long);
                let Compiled { object, c_header, functions, facts, .. } = plain;
                let longest_message = facts.longest_message;
                Ok(Some(Own { object, traced, c_header, functions, longest_message }))
            }
            Err(errors) => compiler::refuse(&errors).map(|_| None),
        }
    }
}

/// The program's own objects.
struct Own {
    object: Vec<u8>,
    /// The same compiled for tracing, or the reason why there is none.
    traced: Result<Vec<u8>, String>,
    /// Declarations of its functions in C.
    c_header: String,
    /// The program of the compartment.
    functions: Option<Vec<u8>>,
    longest_message: usize,
}

/// A program's objects: its own first, then those of its C functions.
pub(super) struct Objects {
    pub(super) own: Vec<Vec<u8>>,
    /// The same, compiled for tracing; or the reason why there are none.
    pub(super) traced: Result<Vec<Vec<u8>>, String>,
    /// Those of the compartment with the program's functions.
    pub(super) functions: Option<Vec<Vec<u8>>>,
    /// Bytes of the longest message to them.
    pub(super) longest_message: usize,
}

/// Parses objects, whose errors name the program's file.
pub(super) fn parse(name: &str, objects: &[Vec<u8>]) -> Result<Vec<Object>, Refused> {
    let parse = |bytes: &Vec<u8>| Object::parse(bytes).map_err(|e| Refused::because(&e).of(name));
    objects.iter().map(|bytes| parse(bytes).map(|object| object.named(name))).collect()
}

/// Links, verifies and compiles a program's objects.
pub(super) fn load(name: &str, objects: &[Object]) -> anyhow::Result<Loaded> {
    Ok(Loaded::prove(name, objects, verify::prove)?.map_err(|e| Refused::because(&e))?)
}
