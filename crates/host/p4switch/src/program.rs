//! A program of the switch: its code for the packet thread, its names for the desk.

use crate::counters::{Counters, counters};
use p4shield_abi::schema::{Architecture, Schema};
use p4shield_bpf::{EngineOptions, LinkError, Linked, LoadError, Object, Program, Verified, link};
use p4shield_switch::Traits;
use p4shield_tables::trace::TracePoint;
use p4shield_tables::{Control, Described, DescribedError};
use p4shield_text::chain;

/// The reason why threads share a program that each could have for itself.
const RECORDED: &str = "packets are recorded";

/// Verifies and loads a program from its objects, or returns the reason why it is refused.
pub type Loader = dyn Fn(&str, &[Object]) -> Result<Loaded, String> + Send + Sync;

/// Loads a program again, or returns the reason why it cannot.
pub type Again = dyn Fn() -> Result<Program, String> + Send + Sync;

/// The objects of a program that was compiled for tracing, or the reason why there are none.
pub type Traced = Result<Vec<Object>, String>;

/// Parses hexadecimal objects, whose errors name the program's file.
pub(crate) fn parsed(file: &str, objects: &[String]) -> Result<Vec<Object>, String> {
    let parse = |object: &String| {
        let bytes = hex::decode(object).map_err(|e| format!("the object is not hexadecimal: {e}"))?;
        Object::parse(&bytes).map(|o| o.named(file)).map_err(|e| e.to_string())
    };
    objects.iter().map(parse).collect()
}

/// A program by its names.
pub(crate) struct Named {
    /// The program's file.
    pub(crate) file: String,
    pub(crate) described: Described,
    /// How the switch runs it.
    pub(crate) traits: Traits,
    pub(crate) control: Result<Control, DescribedError>,
    pub(crate) traced: Traced,
    /// The trace points of its twin, once the packet thread has that.
    pub(crate) points: Option<Vec<TracePoint>>,
    /// The places of its counters, if each packet thread can have the program for itself; otherwise the
    /// reason why they share it.
    pub(crate) counters: Result<Counters, String>,
    /// True while each packet thread has the program for itself.
    pub(crate) is_own: bool,
    /// Loads the program again, with the entries that it begins with.
    pub(crate) again: Box<Again>,
    /// The series of its digests: one begins with each program that does not continue the one before.
    pub(crate) series: u64,
}

/// A program that is ready to run.
pub struct Loaded {
    /// Its file.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Its description, from its object.
    pub described: Described,
    /// How the switch runs it.
    pub traits: Traits,
    /// Loads it again, for a further packet thread.
    pub again: Box<Again>,
}

/// Reason why a program is not loaded, beside that it is not proven safe.
#[derive(Debug, thiserror::Error)]
pub enum Unloadable {
    /// Its objects do not fit together.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It cannot be compiled.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl Loaded {
    /// Links a program's objects, has the program verified by `prove`, and compiles it.
    ///
    /// # Errors
    /// That of `prove`; or [`Unloadable`].
    pub fn prove<E>(
        name: &str,
        objects: &[Object],
        prove: impl FnOnce(Linked) -> Result<Verified, E>,
    ) -> Result<Result<Self, Unloadable>, E> {
        let own = objects.first();
        let schema = own.and_then(Object::schema).map(Schema::decode);
        let (divided, reads_queues) = own.map_or((false, false), |o| (o.is_divided(), o.reads_queues()));
        let linked = match link(objects) {
            Ok(linked) => linked,
            Err(error) => return Ok(Err(error.into())),
        };
        let maps = linked.maps.iter().map(|m| (m.name.clone(), m.definition)).collect();
        let verified = prove(linked)?;
        let load = move || Program::load(&verified, &EngineOptions::default());
        let program = match load() {
            Ok(program) => program,
            Err(error) => return Ok(Err(error.into())),
        };
        let again = Box::new(move || load().map_err(|e| e.to_string()));
        let architecture = schema.as_ref().and_then(|s| s.as_ref().ok()).map(|s| s.architecture);
        let described = Described { program: *program.digest(), maps, schema };
        // A program of C code alone names no port.
        let traits =
            Traits { architecture: architecture.unwrap_or(Architecture::Ebpf), divided, reads_queues };
        Ok(Ok(Self { name: name.to_owned(), program, described, traits, again }))
    }

    /// As [`Self::prove`], with each reason as text.
    pub(crate) fn proven(
        name: &str,
        objects: &[Object],
        prove: impl FnOnce(Linked) -> Result<Verified, String>,
    ) -> Result<Self, String> {
        Self::prove(name, objects, prove)?.map_err(|error| chain(&error))
    }

    /// Divides it into what the packet thread runs, and its names.
    pub(crate) fn parts(self, traced: Traced) -> (Program, Traits, Named) {
        let Self { name: file, program, described, traits, again } = self;
        let control = Control::of(&described);
        let counters = counters(&described, &control, traits);
        let is_own = false;
        let points = None;
        let named =
            Named { file, described, traits, control, traced, points, counters, is_own, again, series: 0 };
        (program, traits, named)
    }
}

impl Named {
    /// Returns the reason why several packet threads share the program; `None` if they do not.
    pub(crate) fn shared_for(&self, threads: usize) -> Option<String> {
        let is_shared = threads > 1 && !self.is_own;
        is_shared.then(|| self.counters.as_ref().err().cloned().unwrap_or_else(|| RECORDED.to_owned()))
    }
}
