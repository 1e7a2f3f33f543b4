//! `p4shield-dev bench mediator`.

use p4shield_bench::mediator::{Options, Row, run, steps};
use p4shield_console::Exit;

use super::{Form, table};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let form = Form { json: self.json, svg: None };
        let text = |rows: &Vec<Row>| table::print("a packet in the switch's thread", rows);
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        form.show(steps(&self.options), measure, text, |_| Vec::new())
    }
}
