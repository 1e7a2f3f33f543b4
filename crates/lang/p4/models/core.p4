// The core library of P4_16: the declarations of the language specification, appendix "core.p4".
#ifndef _CORE_P4_
#define _CORE_P4_

error {
    NoError,              // no error
    PacketTooShort,       // not enough bits in the packet for `extract`
    NoMatch,              // no case of a `select` matches
    StackOutOfBounds,     // index of a header stack out of range
    HeaderTooShort,       // more bits than the maximum of a varbit field
    ParserTimeout,        // too many steps of the parser
    ParserInvalidArgument // an argument that a parser operation does not accept
}

extern packet_in {
    /// Extracts a header of fixed size and advances.
    void extract<T>(out T hdr);
    /// Extracts a header with one varbit field of the given size in bits and advances.
    void extract<T>(out T variableSizeHeader, in bit<32> variableFieldSizeInBits);
    /// Reads without advancing.
    T lookahead<T>();
    /// Advances without reading.
    void advance(in bit<32> sizeInBits);
    /// Length of the packet in bytes.
    bit<32> length();
}

extern packet_out {
    /// Appends a header if it is valid; for a struct, stack or union, each valid header.
    void emit<T>(in T hdr);
}

/// Ends parsing with `toSignal` unless `check` holds.
extern void verify(in bool check, in error toSignal);

@noWarn("unused")
action NoAction() {}

match_kind {
    exact,
    ternary,
    lpm
}

/// An error of compilation unless `check`, which must be constant, holds.
extern bool static_assert(bool check, string message);
extern bool static_assert(bool check);

#endif
