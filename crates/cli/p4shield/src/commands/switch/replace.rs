//! `p4shield switch load`.

use p4shield_console::{Exit, Refused, output};
use p4shield_p4switch::api::{self, ApiError, Replaced};

use super::Socket;
use super::program::{self, Source};

/// Replace the program of a switch while packets flow
///
/// The switch verifies the new program first, and forwards by the old one meanwhile: no packet is lost.
/// Tables, registers, counters and meters that both programs declare alike keep their state; ports and
/// multicast groups stay. A default action that was set stays unless the new program declares another one.
///
/// Examples:
///
///   p4shield switch load router.p4
///   p4shield switch load router.o extern.o    compiled before
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
        let Some(objects) = self.source.objects(p4shield_p4::Placement::Inline)? else {
            return Ok(Exit::Refused);
        };
        // What is no object is refused here, with its file's name.
        program::parse(&self.source.name(), &objects.own)?;
        let traced = objects.traced.as_deref().map_err(Clone::clone);
        match api::replace(&self.socket.socket, self.source.name(), &objects.own, traced) {
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
