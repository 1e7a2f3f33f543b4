//! Explanations of PREVAIL's messages for authors of P4 and C programs, each with a remedy.
//!
//! Example: `Upper bound must be at most packet_size (valid_access(r2.offset+14, width=1) for read)`.
//! The first part names the rule, the part in brackets the assertion. Only texts depend on this table:
//! a message that matches no rule is still a refusal.

use super::location::Location;
use super::reason::Reason;

pub(super) struct Explanation {
    pub(super) reason: Reason,
    pub(super) what: String,
    pub(super) help: &'static str,
}

struct Rule {
    /// Substrings that the message has to contain, all of them.
    marks: &'static [&'static str],
    reason: Reason,
    what: &'static str,
    help: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        marks: &["packet_size"],
        reason: Reason::PacketBounds,
        what: "this packet access is not proven to lie within the packet",
        help: "compare the pointer with data_end first (`if (ptr + size > data_end) return 0;`); in P4, \
               extract the header before using its fields",
    },
    Rule {
        marks: &["meta_offset"],
        reason: Reason::PacketBounds,
        what: "this packet access can lie before the start of the packet",
        help: "keep the offset in an unsigned type and limit it before adding it to the pointer",
    },
    Rule {
        marks: &["Upper bound must be at most 1"],
        reason: Reason::PacketBounds,
        what: "this comparison uses a packet pointer that can point far outside the packet",
        help: "limit the offset before adding it to the pointer (mask it, or compare it with the largest \
               header): a 64-bit value from the packet would wrap around",
    },
    Rule {
        marks: &["r10.stack_offset"],
        reason: Reason::StackBounds,
        what: "this access lies below the function's stack frame",
        help: "use less than the 512 bytes of stack that each function has, or keep the data in a map",
    },
    Rule {
        marks: &["total_stack_size"],
        reason: Reason::StackBounds,
        what: "this access can lie above the stack",
        help: "limit the index before using it on an array on the stack",
    },
    Rule {
        marks: &["Upper bound must be at most 48"],
        reason: Reason::ContextBounds,
        what: "this access lies after the end of the context",
        help: "use the fields that abi::context defines: the context has 48 bytes",
    },
    Rule {
        marks: &["shared_region_size"],
        reason: Reason::MapValueBounds,
        what: "this access can lie after the end of the map's value",
        help: "limit the index before adding it to the value's pointer, or make the value larger",
    },
    Rule {
        marks: &["Lower bound must be at least 0"],
        reason: Reason::MapValueBounds,
        what: "this access can lie before the start of a map's value or of the context",
        help: "keep the index in an unsigned type",
    },
    Rule {
        marks: &["Cannot write to context pointer field"],
        reason: Reason::ContextPointer,
        what: "this instruction overwrites ctx->data or ctx->data_end, which are read-only",
        help: "use adjust_head or adjust_tail to move the packet's ends",
    },
    Rule {
        marks: &["Possible null access"],
        reason: Reason::Null,
        what: "this access uses a map value that can be null",
        help: "compare the result of map_lookup_elem with null before using it",
    },
    Rule {
        marks: &["not numeric"],
        reason: Reason::Uninitialised,
        what: "this instruction reads stack bytes that are uninitialised or hold a pointer",
        help: "initialise all bytes, including padding, before reading them or passing them to a helper",
    },
    Rule {
        marks: &["Illegal map update with a non-numerical value"],
        reason: Reason::Uninitialised,
        what: "the key or value for the map has bytes that are uninitialised or hold a pointer",
        help: "initialise all bytes of key and value, including padding: `struct key k = {};`, then its \
               fields",
    },
    Rule {
        marks: &["Loop counter is too large"],
        reason: Reason::Loop,
        what: "this loop is not proven to end",
        help: "count up from a constant with `<` to a limit of at most 100000, or unroll the loop (the \
               verifier cannot follow loops that count down to 0 or stop on `!=`)",
    },
    Rule {
        marks: &["externally-visible"],
        reason: Reason::PointerLeak,
        what: "this instruction stores a pointer into the packet or a map, which would reveal an address",
        help: "store numbers only",
    },
    Rule {
        marks: &["Only pointers can be dereferenced"],
        reason: Reason::Type,
        what: "this instruction uses a number as an address",
        help: "use pointers from ctx->data, the stack or map_lookup_elem only",
    },
    Rule {
        marks: &["Only numbers can be added to pointers"],
        reason: Reason::Type,
        what: "this instruction adds two pointers",
        help: "add a number to a pointer; subtract two pointers to get their distance",
    },
    Rule {
        marks: &["Cannot subtract pointers"],
        reason: Reason::Comparison,
        what: "this instruction compares or subtracts a pointer and a value of another origin",
        help: "compare packet pointers with data or data_end only, and map values with null only",
    },
    Rule {
        marks: &["context offset"],
        reason: Reason::Type,
        what: "the helper's first argument is not the context",
        help: "pass ctx itself, unchanged",
    },
    Rule {
        marks: &["recursion"],
        reason: Reason::CallDepth,
        what: "a function calls itself, which is not supported",
        help: "use a loop",
    },
    Rule {
        marks: &["call stack frames"],
        reason: Reason::CallDepth,
        what: "functions call each other too deeply",
        help: "let the compiler inline functions (`static inline`): at most 8 functions may be active",
    },
    Rule {
        marks: &["helper function is unavailable"],
        reason: Reason::Helper,
        what: "this helper does not exist",
        help: "use the helpers that abi::helper lists",
    },
    Rule {
        marks: &["Unsigned value below zero"],
        reason: Reason::Unproven,
        what: "the verifier cannot follow an eight-byte value that is assembled from smaller stores on the \
               stack",
        help: "write the value in one store, or read it in the sizes in which it was written",
    },
    Rule {
        marks: &["leads to bottom"],
        reason: Reason::Unproven,
        what: "the verifier lost track of the program's state",
        help: "simplify the surrounding code",
    },
];

/// Explains a message. `register_type` is the type that PREVAIL infers for the register in the message.
pub(super) fn explain(
    message: &str,
    location: Option<&Location>,
    register_type: RegisterType,
) -> Explanation {
    for r in RULES {
        if r.marks.iter().all(|m| message.contains(m)) {
            return Explanation { reason: r.reason, what: r.what.to_owned(), help: r.help };
        }
    }
    if message.contains("Invalid type") {
        return invalid_type(message, location, register_type);
    }
    Explanation {
        reason: Reason::Unproven,
        what: "this instruction is not proven to be safe".to_owned(),
        help: "simplify the surrounding code",
    }
}

/// Type of a register's contents, as PREVAIL infers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterType {
    /// A number on every path.
    Number,
    /// A pointer on every path.
    Pointer,
    /// Different types on different paths.
    Mixed,
    /// Unknown: uninitialised, or a packet pointer from before a resize.
    Unknown,
}

/// Returns the register in a message: `r3` in `Invalid type (r3.type == number)`.
pub(super) fn register_in(message: &str) -> Option<&str> {
    let (_, assertion) = message.split_once('(')?;
    let assertion = assertion.strip_prefix("valid_access(").unwrap_or(assertion);
    let (register, _) = assertion.split_once('.')?;
    register.strip_prefix('r')?.parse::<u8>().ok()?;
    Some(register)
}

/// Explains `Invalid type (r3.type == number)` by the required type and the type that was found.
fn invalid_type(message: &str, location: Option<&Location>, register_type: RegisterType) -> Explanation {
    let wanted = |kind: &str| message.contains(kind);
    let register = register_in(message).unwrap_or("the register");
    let explanation = |reason, what, help| Explanation { reason, what, help };
    let unset = || {
        explanation(
            Reason::Uninitialised,
            format!(
                "{register} is uninitialised here: a path does not set it, or the packet was resized after \
                 it was set"
            ),
            "set it on every path; after adjust_head or adjust_tail, load ctx->data and ctx->data_end and \
             compare again",
        )
    };
    if location.is_some_and(|p| p.text.starts_with("exit")) {
        let help = "return 1 (pass) or 0 (drop) on every path";
        return match register_type {
            RegisterType::Unknown => explanation(
                Reason::Uninitialised,
                "the program returns without a verdict: r0 is uninitialised".to_owned(),
                help,
            ),
            _ => explanation(
                Reason::PointerLeak,
                "the program returns a pointer instead of a verdict".to_owned(),
                help,
            ),
        };
    }
    if register_type == RegisterType::Unknown {
        return unset();
    }
    if wanted("map_fd") {
        return explanation(
            Reason::Type,
            format!("{register} has to be a map"),
            "pass the map's address itself to the helper (`&table`)",
        );
    }
    if wanted("== ctx") {
        let help = "pass ctx itself, unchanged";
        return explanation(Reason::Type, format!("{register} has to be the context"), help);
    }
    if wanted("== number") {
        return explanation(
            Reason::PointerLeak,
            format!("{register} has to be a number, but is a pointer on at least one path"),
            "only add offsets to a pointer; do not compare it with a number, store it in parts or pass it \
             on as a number",
        );
    }
    explanation(
        Reason::Type,
        format!("{register} has to be a pointer, but is a number on at least one path"),
        "use pointers from ctx->data, the stack or map_lookup_elem only",
    )
}
