//! Compiles and verifies programs, and runs them on both engines.

use p4shield_abi::info::{InfoStatus, Snapshot};
use p4shield_abi::trace::EVENT_WORDS;
use p4shield_abi::{ProgramLimit, Verdict};
use p4shield_bpf::verify::Limits;
use p4shield_bpf::{EngineOptions, Meta, Mode, Object, Packet, Program, VmInfo, link, verify};
use p4shield_p4::{Compiled, NoIncludes, Options, compile};

/// Default size of the header copy in bytes.
pub(crate) const COPY: usize = 128;

/// A program on both engines.
pub(crate) struct Bench {
    pub(crate) compiled: Compiled,
    engines: [Program; 2],
    packet: Packet,
    pub(crate) meta: Meta,
    pub(crate) info: VmInfo,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) pass: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) total: u32,
    pub(crate) limit: Option<ProgramLimit>,
}

/// Compiles a program; panics with all diagnostics.
pub(crate) fn compiled(text: &str) -> Compiled {
    match compile("test.p4", text, &NoIncludes, &Options::default()) {
        Ok(c) => c,
        Err(e) => panic!("{e}"),
    }
}

impl Bench {
    pub(crate) fn new(text: &str) -> Self {
        Self::linked(text, &[])
    }

    /// Links other objects too.
    pub(crate) fn linked(text: &str, others: &[Vec<u8>]) -> Self {
        Self::of_objects(compiled(text), others)
    }

    /// Runs a program that was compiled with other options.
    pub(crate) fn of(compiled: Compiled) -> Self {
        Self::of_objects(compiled, &[])
    }

    fn of_objects(compiled: Compiled, others: &[Vec<u8>]) -> Self {
        let mut objects = vec![Object::parse(&compiled.object).expect("a valid object")];
        objects.extend(others.iter().map(|o| Object::parse(o).expect("the other object")));
        let linked = link(&objects).expect("compatible objects");
        let verified = match verify::verify(linked, &Limits::default()) {
            Ok((v, _)) => v,
            Err(e) => panic!("the verifier refuses the object: {e:#?}\n{}\n{}", compiled.ir, compiled.asm),
        };
        let engine = |mode| {
            Program::load(&verified, &EngineOptions { mode, ..EngineOptions::default() })
                .expect("a verified program")
        };
        let engines = [engine(Mode::Jit), engine(Mode::Interpreter)];
        let info = VmInfo::unknown(InfoStatus::Missing);
        Self { compiled, engines, packet: Packet::new(64, COPY), meta: Meta::default(), info }
    }

    pub(crate) fn know(&mut self, fields: &[(u32, u64)]) {
        let mut s = Snapshot::default();
        fields.iter().for_each(|(f, v)| s.set(*f, *v));
        self.info = VmInfo::new(&s, InfoStatus::Known);
    }

    /// Runs a packet on both engines, which must agree.
    pub(crate) fn run(&mut self, packet: &[u8]) -> Out {
        let outs = [0, 1].map(|i| {
            self.packet.reset(packet, packet.len() as u32);
            let o = self.engines[i].run(&mut self.packet, &self.meta, &self.info);
            assert_eq!(o.stopped, None);
            let pass = o.verdict == Verdict::Pass;
            let mut bytes = self.packet.bytes().to_vec();
            // Bytes beyond the header copy are appended unseen.
            bytes.extend(packet.iter().skip(COPY));
            Out { pass, total: o.total, bytes: if pass { bytes } else { Vec::new() }, limit: o.limit }
        });
        let [jit, interpreter] = outs;
        assert_eq!(jit, interpreter, "the engines disagree");
        jit
    }

    /// Runs a packet, and returns the events of the program, which must be the same on both engines.
    pub(crate) fn events(&mut self, packet: &[u8]) -> Vec<[u64; EVENT_WORDS]> {
        self.run(packet);
        let [jit, interpreter] = &mut self.engines;
        let (mut events, mut others) = (Vec::new(), Vec::new());
        jit.take_events(&mut events);
        interpreter.take_events(&mut others);
        assert_eq!(events, others, "the engines disagree");
        jit.take_events(&mut others);
        assert_eq!(events, others, "they are taken once");
        events
    }

    /// Runs a packet that must pass and returns the resulting packet.
    pub(crate) fn passes(&mut self, packet: &[u8]) -> Vec<u8> {
        let o = self.run(packet);
        assert!(o.pass, "dropped: {}\n{}", hex(packet), self.compiled.asm);
        o.bytes
    }

    pub(crate) fn drops(&mut self, packet: &[u8]) {
        assert!(!self.run(packet).pass, "passed: {}\n{}", hex(packet), self.compiled.asm);
    }

    /// Runs a packet that must be dropped because it meets this limit.
    pub(crate) fn meets(&mut self, packet: &[u8], limit: ProgramLimit) {
        assert_eq!(self.run(packet).limit, Some(limit), "{}\n{}", hex(packet), self.compiled.asm);
    }

    /// Returns a map's value, which must be the same in both engines.
    pub(crate) fn map_value(&self, map: &str, key: &[u8]) -> Vec<u8> {
        let get =
            |p: &Program| p.maps().and_then(|m| m.get(map)).expect("the map").lookup(key).expect("the key");
        let (a, b) = (get(&self.engines[0]), get(&self.engines[1]));
        assert_eq!(a, b);
        a
    }

    pub(crate) fn set_map(&mut self, map: &str, key: &[u8], value: &[u8]) {
        for p in &mut self.engines {
            let m = p.maps_mut().and_then(|m| m.get_mut(map)).expect("the map");
            m.update(key, value, p4shield_bpf::maps::UpdateFlag::Any).expect("an entry that fits");
        }
    }
}

pub(crate) fn hex(b: &[u8]) -> String {
    b.iter().map(|x| format!("{x:02x}")).collect()
}

/// Reads one of the repository's example programs.
pub(crate) fn example(path: &str) -> String {
    let path = format!("{}/../../../examples/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A program around the body of a control: one header `h` with the given fields, and `meta` with
/// the given fields.
pub(crate) fn program(header: &str, meta: &str, locals: &str, body: &str) -> String {
    format!(
        "#include <ubpf_model.p4>\n#include <p4shield.p4>\n\
         header h_t {{ {header} }}\nstruct headers_t {{ h_t h; }}\nstruct meta_t {{ {meta} }}\n\
         parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n\
         state start {{ p.extract(hdr.h); transition accept; }} }}\n\
         control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {{\n{locals}\n\
         apply {{ {body} }} }}\n\
         control dprs(packet_out p, in headers_t hdr) {{ apply {{ p.emit(hdr); }} }}\n\
         ubpf(prs(), pipe(), dprs()) main;\n"
    )
}

/// An Ethernet frame.
pub(crate) fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    p.extend(kind.to_be_bytes());
    p.extend(payload);
    p
}

/// Builds an IPv4 packet with `words - 5` words of options and a valid checksum.
pub(crate) fn ipv4(words: u8, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x40 | words, 0];
    p.extend((u16::from(words) * 4 + payload.len() as u16).to_be_bytes());
    p.extend([0x12, 0x34]);
    p.extend(fragment.to_be_bytes());
    p.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    p.resize(usize::from(words.max(5)) * 4, 1);
    let sum = checksum(&p);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend(payload);
    p
}

pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    p4shield_frame::Sum::of(bytes).checksum()
}

/// A TCP header to port 80.
pub(crate) fn tcp(flags: u8) -> Vec<u8> {
    let mut p = vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0];
    p.extend([0; 6]);
    p
}
