//! `p4shield explain`.

use p4shield_p4::diagnostics::Code;

use p4shield_console::{Exit, Refused, output};

/// Explain the code of a compiler error or warning
///
/// Shows the reason, an example of the mistake and its correction. Without a code, lists all codes.
///
/// Examples:
///
///   p4shield explain          list all codes
///   p4shield explain E0301
///
/// Exit code 3 if there is no such code.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// A code such as E0401 or W0103
    code: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let Some(name) = self.code else {
            Code::ALL.iter().for_each(|c| output::line(format_args!("{c}  {}", c.title())));
            return Ok(Exit::Done);
        };
        let unknown = || Refused(format!("there is no code {name}; `p4shield explain` lists all codes"));
        let code = Code::named(&name).ok_or_else(unknown)?;
        let e = code.explain();
        output::line(format_args!("{code}: {}\n\n{}", code.title(), e.why));
        for (title, text) in [("Mistake:", &e.mistake), ("Correction:", &e.fixed)] {
            if !text.is_empty() {
                output::line(format_args!("\n{title}\n\n{}", indented(text)));
            }
        }
        Ok(Exit::Done)
    }
}

fn indented(text: &str) -> String {
    let line = |l: &str| if l.is_empty() { String::new() } else { format!("    {l}") };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
