//! A program of the switch: its code for the packet thread, its names for the desk.

use p4shield_bpf::{Object, Program};
use p4shield_switch::Traits;
use p4shield_tables::trace::TracePoint;
use p4shield_tables::{Control, Described, DescribedError};

/// Verifies and loads a program from its objects, or returns the reason why it is refused.
pub type Loader = dyn Fn(&str, &[Object]) -> Result<Loaded, String> + Send + Sync;

/// The objects of a program that was compiled for tracing, or the reason why there are none.
pub type Traced = Result<Vec<Object>, String>;

/// A program by its names.
#[derive(Debug)]
pub(crate) struct Named {
    /// The program's file.
    pub(crate) file: String,
    pub(crate) described: Described,
    pub(crate) control: Result<Control, DescribedError>,
    pub(crate) traced: Traced,
    /// The trace points of its twin, once the packet thread has that.
    pub(crate) points: Option<Vec<TracePoint>>,
    /// The series of its digests: one begins with each program that does not continue the one before.
    pub(crate) series: u64,
}

/// A program that is ready to run.
#[derive(Debug)]
pub struct Loaded {
    /// Its file.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Its description, from its object.
    pub described: Described,
    /// How the switch runs it.
    pub traits: Traits,
}

impl Loaded {
    /// Divides it into what the packet thread runs, and its names.
    pub(crate) fn parts(self, traced: Traced) -> (Program, Traits, Named) {
        let Self { name: file, program, described, traits } = self;
        let control = Control::of(&described);
        (program, traits, Named { file, described, control, traced, points: None, series: 0 })
    }
}
