//! PREVAIL's messages in words that the author of a P4 or C program understands, and what to do.
//!
//! PREVAIL says `Upper bound must be at most packet_size (valid_access(r2.offset+14, width=1) for read)`. The first
//! part names the rule, the part in brackets the assertion. Only texts hang on this: a message that is not known
//! here is still a refusal.

use super::refusal::{Place, Reason};

pub(super) struct Explanation {
    pub(super) reason: Reason,
    pub(super) what: String,
    pub(super) help: &'static str,
}

struct Rule {
    /// What the message contains, all of it.
    marks: &'static [&'static str],
    reason: Reason,
    what: &'static str,
    help: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        marks: &["packet_size"],
        reason: Reason::PacketBounds,
        what: "this reads or writes the packet without a proof that the packet is that long",
        help: "compare with data_end first (`if (ptr + size > data_end) return 0;`); in P4, extract the header \
               before its fields are used",
    },
    Rule {
        marks: &["meta_offset"],
        reason: Reason::PacketBounds,
        what: "this reads or writes before the start of the packet",
        help: "an offset into the packet must not be negative: keep it in an unsigned type and limit it before it \
               is added",
    },
    Rule {
        marks: &["Upper bound must be at most 1"],
        reason: Reason::PacketBounds,
        what: "this compares a packet pointer that may point far outside the packet",
        help: "limit the offset (mask it, or compare it with the largest header) before it is added to the pointer: \
               a 64-bit value from the packet would wrap around",
    },
    Rule {
        marks: &["r10.stack_offset"],
        reason: Reason::StackBounds,
        what: "this reaches below the function's stack",
        help: "a function has 512 bytes of stack: use less, or keep the data in a map",
    },
    Rule {
        marks: &["total_stack_size"],
        reason: Reason::StackBounds,
        what: "this reaches above the stack",
        help: "limit the index before it is used on an array on the stack",
    },
    Rule {
        marks: &["Upper bound must be at most 48"],
        reason: Reason::ContextBounds,
        what: "this reaches behind the context",
        help: "the context is 48 bytes; see abi::context for its fields",
    },
    Rule {
        marks: &["shared_region_size"],
        reason: Reason::MapValueBounds,
        what: "this reaches behind the map's value",
        help: "limit the index before it is added to the value's pointer, or make the value larger",
    },
    Rule {
        marks: &["Lower bound must be at least 0"],
        reason: Reason::MapValueBounds,
        what: "this reaches before the start of a map's value or of the context",
        help: "an index must not be negative: keep it in an unsigned type",
    },
    Rule {
        marks: &["Cannot write to context pointer field"],
        reason: Reason::ContextPointer,
        what: "this overwrites ctx->data or ctx->data_end",
        help: "these fields are read-only; use adjust_head or adjust_tail to move the packet's ends",
    },
    Rule {
        marks: &["Possible null access"],
        reason: Reason::Null,
        what: "this uses a map value that may be missing",
        help: "check the result of map_lookup_elem for null before it is used",
    },
    Rule {
        marks: &["not numeric"],
        reason: Reason::Uninitialised,
        what: "this reads stack bytes that were never written, or that hold a pointer",
        help: "set all bytes (padding too) before they are read or handed to a helper",
    },
    Rule {
        marks: &["Illegal map update with a non-numerical value"],
        reason: Reason::Uninitialised,
        what: "the key or value for the map has bytes that were never written, or that hold a pointer",
        help: "set all bytes of key and value (padding too): `struct key k = {};`, then its fields",
    },
    Rule {
        marks: &["Loop counter is too large"],
        reason: Reason::Loop,
        what: "this loop is not proven to end",
        help: "count up from a constant with `<` to a limit of at most 100000 (loops that count down to 0 or stop on \
               `!=` cannot be followed), or unroll it",
    },
    Rule {
        marks: &["externally-visible"],
        reason: Reason::PointerLeak,
        what: "this would store a pointer into the packet or a map, where others could read it",
        help: "store numbers only",
    },
    Rule {
        marks: &["Only pointers can be dereferenced"],
        reason: Reason::Type,
        what: "this uses a number as an address",
        help: "pointers come from ctx->data, the stack and map_lookup_elem only",
    },
    Rule {
        marks: &["Only numbers can be added to pointers"],
        reason: Reason::Type,
        what: "this adds two pointers",
        help: "add a number to a pointer; the distance of two pointers is their difference",
    },
    Rule {
        marks: &["Cannot subtract pointers"],
        reason: Reason::Comparison,
        what: "this compares or subtracts a pointer with something that has another origin",
        help: "compare packet pointers with data or data_end only, map values with null only",
    },
    Rule {
        marks: &["context offset"],
        reason: Reason::Type,
        what: "the helper's first argument is not the context",
        help: "hand over ctx itself, as the program got it",
    },
    Rule {
        marks: &["recursion"],
        reason: Reason::CallDepth,
        what: "a function calls itself",
        help: "use a loop",
    },
    Rule {
        marks: &["call stack frames"],
        reason: Reason::CallDepth,
        what: "functions call each other too deeply",
        help: "at most 8 functions may be active at once: let the compiler inline some (`static inline`)",
    },
    Rule {
        marks: &["helper function is unavailable"],
        reason: Reason::Helper,
        what: "there is no such helper",
        help: "the helpers are listed in abi::helper",
    },
    Rule {
        marks: &["Unsigned value below zero"],
        reason: Reason::Unproven,
        what: "this makes an eight-byte value of several smaller ones on the stack, and the verifier cannot follow",
        help: "write the value to the stack in one piece, or read it in the pieces that it was written in",
    },
    Rule {
        marks: &["leads to bottom"],
        reason: Reason::Unproven,
        what: "the verifier lost track of this program",
        help: "simplify the code around it",
    },
];

/// The words for a message. `held` is what PREVAIL knows of the register that the message is about.
pub(super) fn explain(message: &str, place: Option<&Place>, held: Held) -> Explanation {
    for r in RULES {
        if r.marks.iter().all(|m| message.contains(m)) {
            return Explanation { reason: r.reason, what: r.what.to_owned(), help: r.help };
        }
    }
    if message.contains("Invalid type") {
        return invalid_type(message, place, held);
    }
    Explanation {
        reason: Reason::Unproven,
        what: "this is not proven to be safe".to_owned(),
        help: "simplify the code around it",
    }
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// A number on every path.
    Number,
    /// A pointer on every path.
    Pointer,
    /// One thing on one path, another on another.
    Mixed,
    /// Nothing that is known: never set, or a packet pointer from before a resize.
    Nothing,
}

/// The register that a message is about, `r3` in `Invalid type (r3.type == number)`.
pub(super) fn register_in(message: &str) -> Option<&str> {
    let (_, assertion) = message.split_once('(')?;
    let assertion = assertion.strip_prefix("valid_access(").unwrap_or(assertion);
    let (register, _) = assertion.split_once('.')?;
    register.strip_prefix('r')?.parse::<u8>().ok()?;
    Some(register)
}

/// `Invalid type (r3.type == number)`: the kind that was wanted, and what was there, say what went wrong.
fn invalid_type(message: &str, place: Option<&Place>, held: Held) -> Explanation {
    let wanted = |kind: &str| message.contains(kind);
    let register = register_in(message).unwrap_or("the register");
    let say = |reason, what, help| Explanation { reason, what, help };
    let unset = || {
        say(
            Reason::Uninitialised,
            format!(
                "{register} holds nothing here: it was not set on every path, or the packet was resized since"
            ),
            "set it on every path; after adjust_head or adjust_tail load ctx->data and ctx->data_end again, and \
             compare again",
        )
    };
    if place.is_some_and(|p| p.text.starts_with("exit")) {
        let help = "return 1 (pass) or 0 (drop) on every path";
        return match held {
            Held::Nothing => say(
                Reason::Uninitialised,
                "the program returns without a verdict: r0 is not set".to_owned(),
                help,
            ),
            _ => say(
                Reason::PointerLeak,
                "the program returns a pointer instead of a verdict".to_owned(),
                help,
            ),
        };
    }
    if held == Held::Nothing {
        return unset();
    }
    if wanted("map_fd") {
        return say(
            Reason::Type,
            format!("{register} has to be a map"),
            "hand the map's address itself to the helper (`&table`)",
        );
    }
    if wanted("== ctx") {
        let help = "hand over ctx itself, as the program got it";
        return say(Reason::Type, format!("{register} has to be the context"), help);
    }
    if wanted("== number") {
        return say(
            Reason::PointerLeak,
            format!("{register} has to be a number here, but is a pointer, on some path at least"),
            "do not compute with addresses (other than adding an offset), compare them with numbers, store them in \
             parts, or hand them out",
        );
    }
    say(
        Reason::Type,
        format!("{register} has to be a pointer here, but is a number, on some path at least"),
        "pointers come from ctx->data, the stack and map_lookup_elem only",
    )
}
