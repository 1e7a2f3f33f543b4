//! `p4shield switch run`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use p4shield_abi::schema::{Architecture, Schema};
use p4shield_bpf::{EngineOptions, Object, Program, link};
use p4shield_console::{Exit, Refused, output, signals};
use p4shield_p4::{Options, compile};
use p4shield_p4switch::{Config, Loaded, SwitchError, run};
use p4shield_stf::conformance::Folders;
use p4shield_switch::Traits;
use p4shield_tables::Described;

use super::{Socket, load};
use crate::commands::{compile as compiler, verify};

/// Forward packets between network interfaces, as a P4 program decides
///
/// The program is verified first. SIGINT and SIGTERM end the switch, which leaves the interfaces as they
/// were. An interface that is a port gets no packets to this machine's own network stack.
///
/// Examples:
///
///   p4shield switch run router.p4 --port 1=veth1 --port 2=veth2
///   p4shield switch run router.p4 --port 1=veth1 --port 2=veth2 --entries s1-commands.txt
///   p4shield switch run router.o extern.o --port 1=eth1 --port 2=eth2    compiled before
///
/// Exit code 3 if the program or a file is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Run {
    /// The program: P4 source (.p4), or an object that `p4shield compile` made
    program: PathBuf,
    /// Objects with the C functions that it calls
    externs: Vec<PathBuf>,
    /// A port: its number in the program, and the network interface; once for each port
    #[arg(long = "port", value_name = "NUMBER=INTERFACE", required = true, value_parser = port)]
    ports: Vec<Port>,
    /// Load this file before the first packet, as `p4shield switch table load` does; may be repeated
    #[arg(long, value_name = "FILE")]
    entries: Vec<PathBuf>,
    /// Folder that #include searches after the program's own; may be repeated
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    include: Vec<PathBuf>,
    #[command(flatten)]
    socket: Socket,
}

/// A port's number and interface.
#[derive(Clone, Debug)]
struct Port {
    number: u16,
    interface: String,
}

fn port(text: &str) -> Result<Port, String> {
    let form = || "write NUMBER=INTERFACE, such as 1=veth1".to_owned();
    let (number, interface) = text.split_once('=').ok_or_else(form)?;
    let number = number.parse().map_err(|_| form())?;
    if interface.is_empty() { Err(form()) } else { Ok(Port { number, interface: interface.to_owned() }) }
}

impl Run {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let stop = signals::stop_flag()?;
        let entries = self.entries.iter().map(|f| load::entries_file(f)).collect::<Result<_, _>>()?;
        let Some(object) = self.object()? else { return Ok(Exit::Refused) };
        let loaded = self.load(object)?;
        let ports = self.ports.into_iter().map(|p| (p.number, p.interface)).collect::<Vec<_>>();
        let socket = self.socket.socket;
        let config = Config { ports, socket: socket.clone(), entries };
        let shown = config.ports.clone();
        let ready = || {
            let ports: Vec<_> = shown.iter().map(|(number, name)| format!("{number}={name}")).collect();
            let socket = socket.display();
            output::note(format_args!("forwarding between {}; commands: {socket}", ports.join(" ")));
        };
        match run(config, loaded, &stop, ready) {
            Ok(()) => Ok(Exit::Done),
            Err(e @ (SwitchError::NoPorts | SwitchError::Numbers(_) | SwitchError::Entries { .. })) => {
                Err(Refused::because(&e).into())
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Returns the program's object; `None` if its source has errors, which are reported.
    fn object(&self) -> anyhow::Result<Option<Object>> {
        if self.program.extension().is_none_or(|e| e != "p4") {
            return verify::read(&self.program).map(Some);
        }
        let name = self.program.display().to_string();
        let text = p4shield_console::input::text(&self.program, "P4 source")?;
        match compile(&name, &text, &Folders(self.include.clone()), &Options::default()) {
            Ok(compiled) => {
                compiler::report(&compiled.warnings);
                let object = Object::parse(&compiled.object).context("cannot read the compiled object")?;
                Ok(Some(object.named(&name)))
            }
            Err(errors) => compiler::refuse(&errors).map(|_| None),
        }
    }

    /// Links, verifies and loads the program.
    fn load(&self, object: Object) -> anyhow::Result<Loaded> {
        let schema = object.schema().map(Schema::decode);
        let replicates = object.runs_once().is_err();
        let externs =
            self.externs.iter().map(|path| verify::read(path)).collect::<anyhow::Result<Vec<_>>>()?;
        let objects: Vec<_> = std::iter::once(object).chain(externs).collect();
        let linked = link(&objects).map_err(|e| Refused::because(&e))?;
        let maps = linked.maps.iter().map(|m| (m.name.clone(), m.definition)).collect();
        let verified = verify::prove(linked)?;
        let program = Program::load(&verified, &EngineOptions::default());
        let program = program.map_err(|e| Refused::because(&e))?;
        let architecture = schema.as_ref().and_then(|s| s.as_ref().ok()).map(|s| s.architecture);
        let described = Described { program: *program.digest(), maps, schema };
        // A program of C code alone names no port.
        let traits = Traits { architecture: architecture.unwrap_or(Architecture::Ebpf), replicates };
        Ok(Loaded { name: shown(&self.program), program, described, traits })
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
