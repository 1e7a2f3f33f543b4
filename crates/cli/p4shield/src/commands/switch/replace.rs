//! `p4shield switch load`.

use p4shield_console::{Exit, Refused, output};
use p4shield_p4::Placement;
use p4shield_p4switch::api::{self, ApiError, FunctionObjects, Replaced};

use super::Socket;
use super::program::{self, Source};

/// Replace the program of a switch while packets flow
///
/// The switch verifies the new program first, and forwards by the old one meanwhile: no packet is lost.
/// Tables, registers, counters and meters that both programs declare alike keep their state; ports and
/// multicast groups stay. A default action that was set stays unless the new program declares another one.
/// In a switch of placement extern, functions marked with @compartment run in another compartment, which
/// has started before; the one before ends. No packet is received for some milliseconds then.
///
/// Examples:
///
///   p4shield switch load router.p4
///   p4shield switch load router.o extern.o    compiled before
///   p4shield switch load mark.p4 --functions mark.c
///
/// Exit code 3 if the program is refused; the switch then runs the one that it had.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Replace {
    #[command(flatten)]
    source: Source,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

impl Replace {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let socket = &self.socket.socket;
        // An object has been compiled already, and has no function for a compartment.
        let apart =
            self.source.is_p4() && api::status(socket)?.placement == p4shield_p4switch::Placement::Extern;
        let placement = if apart { Placement::Extern } else { Placement::Inline };
        let Some(objects) = self.source.objects(placement)? else {
            return Ok(Exit::Refused);
        };
        // What is no object is refused here, with its file's name.
        program::parse(&self.source.name(), &objects.own)?;
        let traced = objects.traced.as_deref().map_err(Clone::clone);
        let functions = objects.functions.as_ref().map(|functions| FunctionObjects {
            objects: functions.iter().map(hex::encode).collect(),
            longest_message: objects.longest_message,
        });
        match api::replace(socket, self.source.name(), &objects.own, traced, functions) {
            Ok(replaced) if self.json => output::json(&replaced)?,
            Ok(replaced) => output::text(&text(&replaced)),
            Err(ApiError::Failed(why)) => return Err(Refused(why).into()),
            Err(e) => return Err(e.into()),
        }
        Ok(Exit::Done)
    }
}

fn text(replaced: &Replaced) -> String {
    let line = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!("{what}: {}\n", names.join(", ")),
    };
    line("keeps its state", &replaced.kept) + &line("lost", &replaced.lost)
}
