//! An explanation of each diagnostic code, with a wrong and a fixed example: `p4shield explain E0401`.
//!
//! The examples are whole files. A test compiles each and expects the code for the wrong example only.

use crate::diagnostics::Code;

/// The explanation of a diagnostic code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The rule behind the code, or the suspicion behind a warning.
    pub why: &'static str,
    /// A program with the mistake.
    pub mistake: &'static str,
    /// The same program, fixed. Both are empty for a compiler bug, which has no example.
    pub fixed: &'static str,
}

const fn explanation(why: &'static str, mistake: &'static str, fixed: &'static str) -> Explanation {
    Explanation { why, mistake, fixed }
}

/// A program with a parser, a pipeline and a deparser around statements of the pipeline.
macro_rules! pipeline {
    ($locals:literal, $body:literal) => {
        concat!(
            "#include <ubpf_model.p4>\n#include <p4shield.p4>\n",
            "header h_t { bit<8> a; bit<16> w; }\nstruct headers_t { h_t h; }\nstruct meta_t { bit<8> x; \
             }\n\n",
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

/// A parser with a given transition.
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

/// Repeats a line eleven times.
macro_rules! eleven {
    ($line:literal) => {
        concat!($line, $line, $line, $line, $line, $line, $line, $line, $line, $line, $line)
    };
}

impl Code {
    /// Returns the explanation of the code.
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
                "P4 has no such character outside of strings and comments, or a number has a digit that \
                 its base does not have.",
                "const bit<8> X = 0b12;\n",
                "const bit<8> X = 0b11;\n",
            ),
            Self::UnterminatedText => explanation(
                "A comment ends with */, and a string ends with a quotation mark on the same line. The \
                 file ended before either.",
                "/* the ports\nconst bit<16> HTTP = 80;\n",
                "/* the ports */\nconst bit<16> HTTP = 80;\n",
            ),
            Self::BadDirective => explanation(
                "The preprocessor supports include, define, undef, if, ifdef, ifndef, elif, else, endif, \
                 error, warning, line and pragma.",
                "#defin PORT 80\n",
                "#define PORT 80\n",
            ),
            Self::IncludeNotFound => explanation(
                "The resolver searches for names in quotation marks in the folder of the program, and for \
                 all names in the folders of -I. core.p4, the architectures and p4shield.p4 are built in.",
                "#include <cor.p4>\n",
                "#include <core.p4>\n",
            ),
            Self::UnbalancedConditional => explanation(
                "Each #if, #ifdef and #ifndef needs its own #endif in the same file.",
                "#ifdef DEBUG\nconst bit<1> debug = 1;\n",
                "#ifdef DEBUG\nconst bit<1> debug = 1;\n#endif\n",
            ),
            Self::UserError => explanation(
                "The program stops the compiler with #error, usually because a macro is not defined.",
                "#ifndef PORT\n#error define PORT\n#endif\n",
                "#define PORT 80\n#ifndef PORT\n#error define PORT\n#endif\n",
            ),
            Self::Syntax => explanation(
                "The grammar of P4 does not allow this token here. Often a token is missing just before it.",
                "const bit<8> X = 1\nconst bit<8> Y = 2;\n",
                "const bit<8> X = 1;\nconst bit<8> Y = 2;\n",
            ),
            Self::UserWarning => explanation(
                "The program issues this warning with #warning.",
                "#warning this table is too small\n",
                "// this table is too small\n",
            ),
            _ => return None,
        })
    }

    fn of_names(self) -> Option<Explanation> {
        Some(match self {
            Self::UnknownName => explanation(
                "No declaration of this name precedes the use. P4 has no forward references, except to \
                 parser states.",
                "const bit<8> X = Y;\n",
                "const bit<8> Y = 1;\nconst bit<8> X = Y;\n",
            ),
            Self::DuplicateName => explanation(
                "Two declarations of one scope cannot have the same name.",
                "const bit<8> X = 1;\nconst bit<8> X = 2;\n",
                "const bit<8> X = 1;\nconst bit<8> Y = 2;\n",
            ),
            Self::WrongKind => explanation(
                "The name refers to another kind of declaration: a type where a value is expected, or the \
                 reverse.",
                "struct s { bit<8> a; }\nconst bit<8> X = s;\n",
                "struct s { bit<8> a; }\nconst s X = { 1 };\n",
            ),
            Self::UnknownMember => explanation(
                "The type has no field or method of this name.",
                pipeline!("", "hdr.h.b = 1;"),
                pipeline!("", "hdr.h.a = 1;"),
            ),
            Self::Recursive => explanation(
                "P4 has no recursion: a type cannot contain itself, and no function, action, parser or \
                 control can call itself, because the processing of a packet must end in bounded time.",
                "extern E<T> { E(); }\ntypedef E<bit<8>> inner;\nE<E<bit<8>>>() e;\n",
                "extern E<T> { E(); }\nE<bit<8>>() e;\n",
            ),
            Self::Shadowing => explanation(
                "A name shadows another one of an enclosing scope. A reader may mistake one for the other.",
                pipeline!("bit<8> v = 1;", "if (hdr.h.a == 1) { bit<8> v = 2; hdr.h.a = v; } hdr.h.a = v;"),
                pipeline!("bit<8> v = 1;", "if (hdr.h.a == 1) { bit<8> u = 2; hdr.h.a = u; } hdr.h.a = v;"),
            ),
            Self::Unused => explanation(
                "A declaration or value has no effect. It may be left over from an earlier version of the \
                 program, or a similar name may have been used by mistake.",
                pipeline!("bit<8> seen = 0;", "bit<8> sum = hdr.h.a + 1; hdr.h.a = seen;"),
                pipeline!("bit<8> seen = 0;", "bit<8> sum = hdr.h.a + seen; hdr.h.a = sum;"),
            ),
            _ => return None,
        })
    }

    fn of_types(self) -> Option<Explanation> {
        Some(match self {
            Self::TypeMismatch => explanation(
                "P4 has no implicit conversions between these types: both sides must have the same type. \
                 Write a cast to change a width.",
                pipeline!("", "hdr.h.a = hdr.h.w;"),
                pipeline!("", "hdr.h.a = (bit<8>) hdr.h.w;"),
            ),
            Self::BadOperand => explanation(
                "The operator is not defined for these types: arithmetic is for integers, ! for bool, ~ \
                 for bits.",
                pipeline!("", "if (!hdr.h.a) { mark_to_drop(); }"),
                pipeline!("", "if (hdr.h.a == 0) { mark_to_drop(); }"),
            ),
            Self::BadCast => explanation(
                "Valid casts are between bit<1> and bool, between bit<N> and int<N>, from one width to \
                 another of the same sign, and to and from enums with an underlying type.",
                pipeline!("", "if ((bool) hdr.h.a) { mark_to_drop(); }"),
                pipeline!("", "if (hdr.h.a != 0) { mark_to_drop(); }"),
            ),
            Self::BadArguments => explanation(
                "The call has too many or too few arguments, or names a parameter that does not exist.",
                pipeline!("", "mark_to_drop(1);"),
                pipeline!("", "mark_to_drop();"),
            ),
            Self::CannotInfer => explanation(
                "The compiler cannot infer the type from the context: specify it.",
                pipeline!("Counter(8) seen;", "seen.increment(hdr.h.a);"),
                pipeline!("Counter<bit<8>>(8) seen;", "seen.increment(hdr.h.a);"),
            ),
            Self::NotAssignable => explanation(
                "Only an l-value can be assigned: a variable, a field, an element or a slice of these. \
                 `in` parameters are read-only.",
                "bit<8> next(in bit<8> x) { x = x + 1; return x; }\n",
                "bit<8> next(in bit<8> x) { return x + 1; }\n",
            ),
            Self::BadType => explanation(
                "The type is not allowed here: headers contain bits, tables match integers.",
                "#include <core.p4>\nheader h { error e; }\n",
                "#include <core.p4>\nheader h { bit<8> e; }\n",
            ),
            Self::BadWidth => explanation(
                "Widths are from 1 to 2048 bits, slices must lie within the value, and stacks have at \
                 least one element.",
                pipeline!("", "hdr.h.a = hdr.h.w[16:9];"),
                pipeline!("", "hdr.h.a = hdr.h.w[15:8];"),
            ),
            Self::NotConstant => explanation(
                "Sizes, widths, initial entries and constants must be known at compile time.",
                pipeline!("const bit<8> c = meta.x;", "hdr.h.a = c;"),
                pipeline!("const bit<8> c = 3;", "hdr.h.a = c;"),
            ),
            Self::DivisionByZero => explanation(
                "The divisor is a compile-time constant of value zero.",
                "const bit<8> X = 1 / 0;\n",
                "const bit<8> X = 1 / 1;\n",
            ),
            Self::BadConstant => explanation(
                "The constant is out of range for its use: for example, a key that no packet can have.",
                states!("select(h.a) { 256: accept; default: reject; }"),
                states!("select(h.a) { 255: accept; default: reject; }"),
            ),
            Self::ConstantOverflow => explanation(
                "The number has more bits than its type. The compiler discards the upper bits, which is \
                 rarely intended.",
                "const bit<8> X = 8w300;\n",
                "const bit<16> X = 16w300;\n",
            ),
            _ => return None,
        })
    }

    fn of_programs(self) -> Option<Explanation> {
        Some(match self {
            Self::BadStatement => explanation(
                "The statement is not allowed here: no `return` in a parser state, no table outside of a \
                 control.",
                "#include <core.p4>\nparser prs(packet_in p) { state start { exit; transition accept; } }\n",
                "#include <core.p4>\nparser prs(packet_in p) { state start { transition accept; } }\n",
            ),
            Self::BadParser => explanation(
                "A parser starts at `start`, and every transition leads to one of its own states, to \
                 accept or to reject.",
                "#include <core.p4>\nparser prs(packet_in p) { state begin { transition accept; } }\n",
                "#include <core.p4>\nparser prs(packet_in p) { state start { transition accept; } }\n",
            ),
            Self::BadTable => explanation(
                "A property of the table is invalid: an unknown match kind, an action that is not listed, \
                 or an entry whose keys do not match the table's.",
                pipeline!("table t { key = { hdr.h.a : exat; } actions = { NoAction; } }", "t.apply();"),
                pipeline!("table t { key = { hdr.h.a : exact; } actions = { NoAction; } }", "t.apply();"),
            ),
            Self::BadMain => explanation(
                "A program ends with `main`, an instance of its architecture's package with all parsers \
                 and controls that the package requires.",
                "#include <ebpf_model.p4>\nstruct h_t { }\n\
                 parser p(packet_in b, out h_t h) { state start { transition accept; } }\n\
                 control c(inout h_t h, out bool accept) { apply { accept = true; } }\n",
                "#include <ebpf_model.p4>\nstruct h_t { }\n\
                 parser p(packet_in b, out h_t h) { state start { transition accept; } }\n\
                 control c(inout h_t h, out bool accept) { apply { accept = true; } }\n\
                 ebpfFilter(p(), c()) main;\n",
            ),
            Self::BadReturn => explanation(
                "A function with a result type returns a value of that type on every path; an action \
                 returns none.",
                "bit<8> f(in bit<8> x) { if (x == 1) { return 2; } }\n",
                "bit<8> f(in bit<8> x) { if (x == 1) { return 2; } return 0; }\n",
            ),
            Self::BadInstance => explanation(
                "The arguments of an extern, parser, control or package do not match its declaration, or \
                 instances are not allowed here.",
                pipeline!("Register<bit<8>, bit<32>>() r;", "hdr.h.a = r.read(0);"),
                pipeline!("Register<bit<8>, bit<32>>(16) r;", "hdr.h.a = r.read(0);"),
            ),
            Self::BadAnnotation => explanation(
                "The annotation is malformed, or repeats a name.",
                "@name(1) const bit<8> X = 1;\n",
                "@name(\"x\") const bit<8> X = 1;\n",
            ),
            _ => return None,
        })
    }

    /// Explains the limits of the compiler, which also refuse valid programs.
    fn of_limits(self) -> Option<Explanation> {
        Some(match self {
            Self::Unsupported => explanation(
                "The program may be valid, but this compiler cannot translate it yet, or one run of an \
                 eBPF program cannot execute it. docs/reference/conformance.md lists what is not supported.",
                "#include <core.p4>\npackage other(bit<8> x);\nother(1) main;\n",
                "#include <core.p4>\npackage other(bit<8> x);\n",
            ),
            Self::TooDeep => explanation(
                "The compiler limits the nesting of expressions and blocks, so that no program exhausts \
                 its stack.",
                "#define A(x) (((((((((((x)))))))))))\nconst bit<8> X = A(A(A(A(A(A(A(1)))))));\n",
                "#define A(x) (((((((((((x)))))))))))\nconst bit<8> X = A(1);\n",
            ),
            Self::TooLarge => explanation(
                "The compiler expands macros, inlines calls and unrolls parser loops; the size of the \
                 result is limited.",
                "#define A(x) x x x x x x x x x x\nA(A(A(A(A(A(A(A(;))))))))\n",
                "#define A(x) x x x x x x x x x x\nA(A(;))\n",
            ),
            Self::TooManyErrors => explanation(
                "The compiler reports only the first errors. Fix those first; the others are often \
                 consequences of them.",
                concat!("#define A 1\n", eleven!("const bit<8> X = AA+AA+AA+AA+AA+AA+AA+AA+AA+AA;\n")),
                "#define A 1\nconst bit<8> X = A+A+A+A+A+A+A+A+A+A;\n",
            ),
            Self::Internal => explanation(
                "An internal check of the compiler failed. Please report the program that causes this.",
                "",
                "",
            ),
            _ => return None,
        })
    }

    fn of_warnings(self) -> Explanation {
        match self {
            Self::Uninitialised => explanation(
                "The program reads the value before writing it, on at least one path. An unwritten value \
                 reads as 0, which is rarely intended.",
                pipeline!("bit<8> v;", "if (hdr.h.a == 1) { v = 2; } hdr.h.a = v;"),
                pipeline!("bit<8> v = 0;", "if (hdr.h.a == 1) { v = 2; } hdr.h.a = v;"),
            ),
            Self::InvalidHeader => explanation(
                "The header is invalid on every path that leads here, so its fields have no value: reads \
                 give 0, and writes are lost.",
                pipeline!("", "if (!hdr.h.isValid()) { meta.x = hdr.h.a; }"),
                pipeline!("", "if (hdr.h.isValid()) { meta.x = hdr.h.a; }"),
            ),
            Self::UnreachableCode => explanation(
                "No packet reaches this code: a return, an exit or a constant condition precedes it.",
                pipeline!("", "return; hdr.h.a = 2;"),
                pipeline!("", "hdr.h.a = 2; return;"),
            ),
            Self::UnknownInformation => explanation(
                "In-VM information may be missing or stale. Unless the program checks it, a packet whose \
                 program run reads unknown information is dropped.",
                pipeline!("", "if (get_tcp_mem_used() > 5) { mark_to_drop(); }"),
                pipeline!("", "if (vm_info_status() == 0 && get_tcp_mem_used() > 5) { mark_to_drop(); }"),
            ),
            Self::MissingDefault => explanation(
                "Packets that match no case are rejected. Add an explicit default if that is intended.",
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

    /// Finds a code by name, such as `E0401`, in upper or lower case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str().eq_ignore_ascii_case(name))
    }
}
