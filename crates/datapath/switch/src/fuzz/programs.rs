//! The programs of a life.

use crate::program::{Traits, Twin};
use p4shield_abi::schema::Architecture;
use p4shield_bpf::verify::{Limits, verify};
use p4shield_bpf::{EngineOptions, Mode, Object, Program, Verified, link};

const REQUESTS: &str = include_str!("programs/requests.p4");
const ROUTER: &str = include_str!("../../../../../examples/programs/router.p4");
const FILTER: &str = include_str!("programs/filter.p4");
const REDIRECT: &str = include_str!("programs/redirect.p4");
/// Behind it, egress of [`REQUESTS`] knows how long packets waited.
const QUEUES: (&str, &str) = ("// QUEUES", "hdr.h.group = hdr.h.group ^ (bit<16>) std.deq_qdepth;");

/// [`REQUESTS`] with calls of a function in a compartment, from ingress and egress.
const CALLS: [(&str, &str); 3] = [
    ("header h_t", "@compartment extern bit<16> key(in bit<16> x);\nheader h_t"),
    ("// INGRESS", "if (hdr.h.only[4:4] == 1) { hdr.h.keep = key(hdr.h.keep); }"),
    ("// EGRESS", "if (hdr.h.only[5:5] == 1) { hdr.h.keep = key(hdr.h.keep); }"),
];

/// Programs that a life begins with or changes to, compiled once.
pub struct Programs(Vec<Compiled>);

/// A program, and its twin for tracing.
struct Compiled {
    plain: Verified,
    traced: Verified,
    traits: Traits,
}

impl Programs {
    /// Makes the programs with a compiler of P4, which gets a text, and true to compile it for tracing.
    ///
    /// # Panics
    /// The compiler or the verifier refuses one.
    pub fn new(compile: impl Fn(&str, bool) -> Vec<u8> + Sync) -> Self {
        let queued = REQUESTS.replace(QUEUES.0, QUEUES.1);
        let calling = |text: &str| CALLS.iter().fold(text.to_owned(), |text, (at, by)| text.replace(at, by));
        let (calls, queued_calls) = (calling(REQUESTS), calling(&queued));
        let texts = [
            (REQUESTS, Architecture::V1model),
            (&queued, Architecture::V1model),
            (ROUTER, Architecture::V1model),
            (FILTER, Architecture::Ebpf),
            (REDIRECT, Architecture::Ubpf),
            (&calls, Architecture::V1model),
            (&queued_calls, Architecture::V1model),
        ];
        let verified = |bytes: &[u8]| {
            let linked = link(&[Object::parse(bytes).expect("an object")]).expect("it links");
            verify(linked, &Limits::default()).expect("it is safe").0
        };
        let compiled = |text: &str, architecture| {
            let object = compile(text, false);
            let parsed = Object::parse(&object).expect("an object");
            let (divided, reads_queues) = (parsed.is_divided(), parsed.reads_queues());
            Compiled {
                plain: verified(&object),
                traced: verified(&compile(text, true)),
                traits: Traits { architecture, divided, reads_queues },
            }
        };
        let programs = std::thread::scope(|threads| {
            let compiled = &compiled;
            let started =
                texts.map(|(text, architecture)| threads.spawn(move || compiled(text, architecture)));
            started.map(|thread| thread.join().expect("no panic"))
        });
        Self(programs.into())
    }

    pub(super) fn load(&self, number: usize, mode: Mode) -> (Program, Traits) {
        let Compiled { plain, traits, .. } = &self.0[number];
        (loaded(plain, mode), *traits)
    }

    /// Returns the twin of a program, which takes all of its maps.
    pub(super) fn twin(&self, number: usize, mode: Mode) -> Twin {
        let Compiled { traced, traits, .. } = &self.0[number];
        let program = loaded(traced, mode);
        Twin { maps: names(&program), program, traits: *traits }
    }
}

fn loaded(verified: &Verified, mode: Mode) -> Program {
    let options = EngineOptions { mode, ..EngineOptions::default() };
    Program::load(verified, &options).expect("it was verified")
}

/// Returns the names of a program's maps.
pub(super) fn names(program: &Program) -> Vec<String> {
    program.maps().into_iter().flat_map(|all| all.iter()).map(|m| m.name().to_owned()).collect()
}
