//! What each diagnostic means, with an example of the mistake and its mend: `p4shield explain E0401`.
//!
//! The examples are whole files; a test compiles each and finds the code in the mistake and not in the mend.

use crate::diagnostics::Code;

/// A code, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Why it is a mistake, or what the compiler thinks of it.
    pub why: &'static str,
    /// A program with the mistake.
    pub mistake: &'static str,
    /// The same program without it; both are empty for a bug of the compiler, which has no example.
    pub mended: &'static str,
}

const fn explanation(why: &'static str, mistake: &'static str, mended: &'static str) -> Explanation {
    Explanation { why, mistake, mended }
}

/// A parser, pipeline and deparser around statements of the pipeline.
macro_rules! pipeline {
    ($locals:literal, $body:literal) => {
        concat!(
            "#include <ubpf_model.p4>\n#include <p4shield.p4>\n",
            "header h_t { bit<8> a; bit<16> w; }\nstruct headers_t { h_t h; }\nstruct meta_t { bit<8> x; }\n\n",
            "parser prs(packet_in p, out headers_t hdr, inout meta_t meta, inout standard_metadata std) {\n",
            "    state start { p.extract(hdr.h); transition accept; }\n}\n\n",
            "control pipe(inout headers_t hdr, inout meta_t meta, inout standard_metadata std) {\n",
            "    ",
            $locals,
            "\n    apply { ",
            $body,
            " }\n}\n\n",
            "control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }\n\n",
            "ubpf(prs(), pipe(), dprs()) main;\n"
        )
    };
}

/// A parser with a state that selects.
macro_rules! states {
    ($state:literal) => {
        concat!(
            "#include <core.p4>\nheader h_t { bit<8> a; }\n\n",
            "parser prs(packet_in p, out h_t h) {\n    state start { p.extract(h); transition ",
            $state,
            " }\n}\n"
        )
    };
}

/// A line eleven times.
macro_rules! eleven {
    ($line:literal) => {
        concat!($line, $line, $line, $line, $line, $line, $line, $line, $line, $line, $line)
    };
}

impl Code {
    /// What the code means.
    #[must_use]
    pub fn explain(self) -> Explanation {
        self.lexical()
            .or_else(|| self.of_names())
            .or_else(|| self.of_types())
            .or_else(|| self.of_programs())
            .or_else(|| self.of_limits())
            .unwrap_or_else(|| self.of_warnings())
    }

    fn lexical(self) -> Option<Explanation> {
        Some(match self {
            Self::BadCharacter => explanation(
                "P4 has no such character outside of strings and comments, or a number has a digit that its base lacks.",
                "const bit<8> X = 0b12;\n",
                "const bit<8> X = 0b11;\n",
            ),
            Self::UnterminatedText => explanation(
                "A comment ends with */ and a string with a quotation mark on its own line; here the file ended first.",
                "/* the ports\nconst bit<16> HTTP = 80;\n",
                "/* the ports */\nconst bit<16> HTTP = 80;\n",
            ),
            Self::BadDirective => explanation(
                "The preprocessor knows include, define, undef, if, ifdef, ifndef, elif, else, endif, error, warning, line and pragma.",
                "#defin PORT 80\n",
                "#define PORT 80\n",
            ),
            Self::IncludeNotFound => explanation(
                "Names in quotation marks are looked for beside the program, all names in the folders of -I; core.p4, \
                 the architectures and p4shield.p4 are built in.",
                "#include <cor.p4>\n",
                "#include <core.p4>\n",
            ),
            Self::UnbalancedConditional => explanation(
                "Each #if, #ifdef and #ifndef needs its own #endif in the same file.",
                "#ifdef DEBUG\nconst bit<1> debug = 1;\n",
                "#ifdef DEBUG\nconst bit<1> debug = 1;\n#endif\n",
            ),
            Self::UserError => explanation(
                "The program itself stops the compiler here, usually because a macro is missing.",
                "#ifndef PORT\n#error define PORT\n#endif\n",
                "#define PORT 80\n#ifndef PORT\n#error define PORT\n#endif\n",
            ),
            Self::Syntax => explanation(
                "The grammar of P4 does not allow this here. Often something is missing just before.",
                "const bit<8> X = 1\nconst bit<8> Y = 2;\n",
                "const bit<8> X = 1;\nconst bit<8> Y = 2;\n",
            ),
            Self::UserWarning => explanation(
                "The program itself says this to whoever compiles it.",
                "#warning this table is too small\n",
                "// this table is too small\n",
            ),
            _ => return None,
        })
    }

    fn of_names(self) -> Option<Explanation> {
        Some(match self {
            Self::UnknownName => explanation(
                "Nothing of this name is declared before this place. P4 knows no forward references, except of states.",
                "const bit<8> X = Y;\n",
                "const bit<8> Y = 1;\nconst bit<8> X = Y;\n",
            ),
            Self::DuplicateName => explanation(
                "Two things of one scope cannot have one name.",
                "const bit<8> X = 1;\nconst bit<8> X = 2;\n",
                "const bit<8> X = 1;\nconst bit<8> Y = 2;\n",
            ),
            Self::WrongKind => explanation(
                "The name exists but stands for something else: a type where a value belongs, or the reverse.",
                "struct s { bit<8> a; }\nconst bit<8> X = s;\n",
                "struct s { bit<8> a; }\nconst s X = { 1 };\n",
            ),
            Self::UnknownMember => explanation(
                "The type has no field or method of this name.",
                pipeline!("", "hdr.h.b = 1;"),
                pipeline!("", "hdr.h.a = 1;"),
            ),
            Self::Recursive => explanation(
                "P4 has no recursion: a type cannot contain itself, and nothing can call itself, because packets have \
                 to be done in bounded time.",
                "extern E<T> { E(); }\ntypedef E<bit<8>> inner;\nE<E<bit<8>>>() e;\n",
                "extern E<T> { E(); }\nE<bit<8>>() e;\n",
            ),
            Self::Shadowing => explanation(
                "A name hides another one of a scope around it. Whoever reads the program may take one for the other.",
                pipeline!("bit<8> v = 1;", "if (hdr.h.a == 1) { bit<8> v = 2; hdr.h.a = v; } hdr.h.a = v;"),
                pipeline!("bit<8> v = 1;", "if (hdr.h.a == 1) { bit<8> u = 2; hdr.h.a = u; } hdr.h.a = v;"),
            ),
            Self::Unused => explanation(
                "Something has no effect: usually the remainder of an earlier version of the program, or a name for another.",
                pipeline!("bit<8> seen = 0;", "bit<8> sum = hdr.h.a + 1; hdr.h.a = seen;"),
                pipeline!("bit<8> seen = 0;", "bit<8> sum = hdr.h.a + seen; hdr.h.a = sum;"),
            ),
            _ => return None,
        })
    }

    fn of_types(self) -> Option<Explanation> {
        Some(match self {
            Self::TypeMismatch => explanation(
                "P4 converts nothing by itself: both sides have to have one type. Write a cast where a width changes.",
                pipeline!("", "hdr.h.a = hdr.h.w;"),
                pipeline!("", "hdr.h.a = (bit<8>) hdr.h.w;"),
            ),
            Self::BadOperand => explanation(
                "The operator does not exist for these types: arithmetic is for integers, ! for bool, ~ for bits.",
                pipeline!("", "if (!hdr.h.a) { mark_to_drop(); }"),
                pipeline!("", "if (hdr.h.a == 0) { mark_to_drop(); }"),
            ),
            Self::BadCast => explanation(
                "Casts lead between bit<1> and bool, between bit<N> and int<N>, from one width to another of the same \
                 sign, and to and from enums with an underlying type.",
                pipeline!("", "if ((bool) hdr.h.a) { mark_to_drop(); }"),
                pipeline!("", "if (hdr.h.a != 0) { mark_to_drop(); }"),
            ),
            Self::BadArguments => explanation(
                "The call has too many or too few arguments, or names a parameter that does not exist.",
                pipeline!("", "mark_to_drop(1);"),
                pipeline!("", "mark_to_drop();"),
            ),
            Self::CannotInfer => explanation(
                "Nothing here says which type is meant: name it.",
                pipeline!("Counter(8) seen;", "seen.increment(hdr.h.a);"),
                pipeline!("Counter<bit<8>>(8) seen;", "seen.increment(hdr.h.a);"),
            ),
            Self::NotAssignable => explanation(
                "Only variables, fields, elements and slices of them can be assigned, and no `in` parameter.",
                "bit<8> next(in bit<8> x) { x = x + 1; return x; }\n",
                "bit<8> next(in bit<8> x) { return x + 1; }\n",
            ),
            Self::BadType => explanation(
                "The type exists but cannot stand here: headers hold bits, tables match integers.",
                "#include <core.p4>\nheader h { error e; }\n",
                "#include <core.p4>\nheader h { bit<8> e; }\n",
            ),
            Self::BadWidth => explanation(
                "Widths are from 1 to 2048 bits, slices lie within the value, stacks have at least one element.",
                pipeline!("", "hdr.h.a = hdr.h.w[16:9];"),
                pipeline!("", "hdr.h.a = hdr.h.w[15:8];"),
            ),
            Self::NotConstant => explanation(
                "Sizes, widths, initial entries and constants have to be known when the program is compiled.",
                pipeline!("const bit<8> c = meta.x;", "hdr.h.a = c;"),
                pipeline!("const bit<8> c = 3;", "hdr.h.a = c;"),
            ),
            Self::DivisionByZero => explanation(
                "The divisor is zero already when the program is compiled.",
                "const bit<8> X = 1 / 0;\n",
                "const bit<8> X = 1 / 1;\n",
            ),
            Self::BadConstant => explanation(
                "The constant is out of the range of what it is for: a key that no packet can have, for example.",
                states!("select(h.a) { 256: accept; default: reject; }"),
                states!("select(h.a) { 255: accept; default: reject; }"),
            ),
            Self::ConstantOverflow => explanation(
                "The number has more bits than its type; the upper ones are cut off, which rarely is meant.",
                "const bit<8> X = 8w300;\n",
                "const bit<16> X = 16w300;\n",
            ),
            _ => return None,
        })
    }

    fn of_programs(self) -> Option<Explanation> {
        Some(match self {
            Self::BadStatement => explanation(
                "The statement cannot stand here: no `return` in a parser state, no table outside of a control.",
                "#include <core.p4>\nparser prs(packet_in p) { state start { exit; transition accept; } }\n",
                "#include <core.p4>\nparser prs(packet_in p) { state start { transition accept; } }\n",
            ),
            Self::BadParser => explanation(
                "A parser starts at `start`, and every transition leads to a state of its own, accept or reject.",
                "#include <core.p4>\nparser prs(packet_in p) { state begin { transition accept; } }\n",
                "#include <core.p4>\nparser prs(packet_in p) { state start { transition accept; } }\n",
            ),
            Self::BadTable => explanation(
                "A property of the table does not fit: an unknown match kind, an action that is not listed, an entry of \
                 other keys than the table's.",
                pipeline!("table t { key = { hdr.h.a : exat; } actions = { NoAction; } }", "t.apply();"),
                pipeline!("table t { key = { hdr.h.a : exact; } actions = { NoAction; } }", "t.apply();"),
            ),
            Self::BadMain => explanation(
                "A program ends with `main`, an instance of its architecture's package with all the parsers and \
                 controls that it wants.",
                "#include <ebpf_model.p4>\nstruct h_t { }\n\
                 parser p(packet_in b, out h_t h) { state start { transition accept; } }\n\
                 control c(inout h_t h, out bool accept) { apply { accept = true; } }\n",
                "#include <ebpf_model.p4>\nstruct h_t { }\n\
                 parser p(packet_in b, out h_t h) { state start { transition accept; } }\n\
                 control c(inout h_t h, out bool accept) { apply { accept = true; } }\nebpfFilter(p(), c()) main;\n",
            ),
            Self::BadReturn => explanation(
                "A function of a type returns a value of it on every way; an action returns none.",
                "bit<8> f(in bit<8> x) { if (x == 1) { return 2; } }\n",
                "bit<8> f(in bit<8> x) { if (x == 1) { return 2; } return 0; }\n",
            ),
            Self::BadInstance => explanation(
                "An extern, parser, control or package is constructed with other arguments than it declares, or where \
                 nothing can be constructed.",
                pipeline!("Register<bit<8>, bit<32>>() r;", "hdr.h.a = r.read(0);"),
                pipeline!("Register<bit<8>, bit<32>>(16) r;", "hdr.h.a = r.read(0);"),
            ),
            Self::BadAnnotation => explanation(
                "The annotation has another form than it must have, or stands twice.",
                "@name(1) const bit<8> X = 1;\n",
                "@name(\"x\") const bit<8> X = 1;\n",
            ),
            _ => return None,
        })
    }

    /// What the compiler cannot do, or will not, however right the program is.
    fn of_limits(self) -> Option<Explanation> {
        Some(match self {
            Self::Unsupported => explanation(
                "The program may be right, but this compiler cannot translate it yet, or one run of a program cannot do \
                 it. docs/reference/conformance.md lists what that is.",
                "#include <core.p4>\npackage other(bit<8> x);\nother(1) main;\n",
                "#include <core.p4>\npackage other(bit<8> x);\n",
            ),
            Self::TooDeep => explanation(
                "Expressions and blocks may be nested only so deep, so that no program exhausts the compiler.",
                "#define A(x) (((((((((((x)))))))))))\nconst bit<8> X = A(A(A(A(A(A(A(1)))))));\n",
                "#define A(x) (((((((((((x)))))))))))\nconst bit<8> X = A(1);\n",
            ),
            Self::TooLarge => explanation(
                "Macros are expanded, calls inlined and parser loops unrolled; what comes out has a limit.",
                "#define A(x) x x x x x x x x x x\nA(A(A(A(A(A(A(A(;))))))))\n",
                "#define A(x) x x x x x x x x x x\nA(A(;))\n",
            ),
            Self::TooManyErrors => explanation(
                "Only the first errors are told: mend those, the rest often follows from them.",
                concat!("#define A 1\n", eleven!("const bit<8> X = AA+AA+AA+AA+AA+AA+AA+AA+AA+AA;\n")),
                "#define A 1\nconst bit<8> X = A+A+A+A+A+A+A+A+A+A;\n",
            ),
            Self::Internal => explanation(
                "The compiler contradicts itself. Please report the program that does this.",
                "",
                "",
            ),
            _ => return None,
        })
    }

    fn of_warnings(self) -> Explanation {
        match self {
            Self::Uninitialised => explanation(
                "The value is read before anything was written to it, at least on one of the ways that lead there. It \
                 reads as 0, which rarely is meant.",
                pipeline!("bit<8> v;", "if (hdr.h.a == 1) { v = 2; } hdr.h.a = v;"),
                pipeline!("bit<8> v = 0;", "if (hdr.h.a == 1) { v = 2; } hdr.h.a = v;"),
            ),
            Self::InvalidHeader => explanation(
                "On every way that leads here the header is not valid, so its fields hold nothing: reading them gives 0, \
                 and what is written to them is lost.",
                pipeline!("", "if (!hdr.h.isValid()) { meta.x = hdr.h.a; }"),
                pipeline!("", "if (hdr.h.isValid()) { meta.x = hdr.h.a; }"),
            ),
            Self::UnreachableCode => explanation(
                "No packet gets here: a return, exit or constant condition stands before.",
                pipeline!("", "return; hdr.h.a = 2;"),
                pipeline!("", "hdr.h.a = 2; return;"),
            ),
            Self::UnknownInformation => explanation(
                "In-VM information may be missing or stale. Unless the program asks, a packet for which something was \
                 not known is dropped.",
                pipeline!("", "if (get_tcp_mem_used() > 5) { mark_to_drop(); }"),
                pipeline!("", "if (vm_info_status() == 0 && get_tcp_mem_used() > 5) { mark_to_drop(); }"),
            ),
            Self::MissingDefault => explanation(
                "Packets that match no case are rejected. Say so if that is meant.",
                states!("select(h.a) { 1: accept; }"),
                states!("select(h.a) { 1: accept; default: reject; }"),
            ),
            _ => explanation(
                "The range ends before it starts, so nothing matches it.",
                states!("select(h.a) { 9 .. 3: accept; default: reject; }"),
                states!("select(h.a) { 3 .. 9: accept; default: reject; }"),
            ),
        }
    }

    /// The code of this name, such as `E0401`; letters of either case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str().eq_ignore_ascii_case(name))
    }
}
