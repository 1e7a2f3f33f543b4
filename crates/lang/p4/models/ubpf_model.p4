// The `ubpf_model` architecture, version 20200515: the declarations that programs written for p4c-ubpf expect.
//
// P4 Shield's behaviour where the architecture does not specify it:
// - The verdict is `pass`, unless the last call of mark_to_drop() is after the last call of mark_to_pass().
// - A packet is dropped if the parser rejects it or if it is too short.
// - Registers are zero at load and have their declared width.
#ifndef _UBPF_MODEL_P4_
#define _UBPF_MODEL_P4_

#include <core.p4>

#ifndef UBPF_MODEL_VERSION
#define UBPF_MODEL_VERSION 20200515
#endif

const bit<32> __ubpf_model_version = UBPF_MODEL_VERSION;

#if UBPF_MODEL_VERSION >= 20200515
enum ubpf_action {
    ABORT,
    DROP,
    PASS,
    REDIRECT
}

struct standard_metadata {
    bit<32>     input_port;
    bit<32>     packet_length; // of the whole packet, in bytes
    ubpf_action output_action;
    bit<32>     output_port;
    bool        clone;
    bit<32>     clone_port;
}
#endif

/// Drops the packet, unless mark_to_pass() is called later.
extern void mark_to_drop();
/// Lets the packet pass, unless mark_to_drop() is called later.
extern void mark_to_pass();

/// An array of `size` values of type T, indexed by S.
extern Register<T, S> {
    Register(bit<32> size);
    /// The value at `index`; 0 if there is no such element.
    T read(in S index);
    /// Sets the value at `index`; nothing happens if there is no such element.
    void write(in S index, in T value);
}

/// Nanoseconds of the P4 VM's monotonic clock.
extern bit<48> ubpf_time_get_ns();

/// Cuts the packet after `len` bytes, when it leaves.
extern void truncate(in bit<32> len);

enum HashAlgorithm {
    lookup3
}

/// A hash of the fields of a tuple.
extern void hash<D>(out bit<32> result, in HashAlgorithm algo, in D data);

/// A checksum after a 16-bit field changed from `old` to `new` (RFC 1624).
extern bit<16> csum_replace2(in bit<16> csum, in bit<16> old, in bit<16> new);
/// A checksum after a 32-bit field changed from `old` to `new` (RFC 1624).
extern bit<16> csum_replace4(in bit<16> csum, in bit<32> old, in bit<32> new);

#if UBPF_MODEL_VERSION >= 20200515
parser parse<H, M>(packet_in packet, out H headers, inout M meta, inout standard_metadata std);
control pipeline<H, M>(inout H headers, inout M meta, inout standard_metadata std);
#else
parser parse<H, M>(packet_in packet, out H headers, inout M meta);
control pipeline<H, M>(inout H headers, inout M meta);
#endif

@deparser
control deparser<H>(packet_out b, in H headers);

package ubpf<H, M>(parse<H, M> prs, pipeline<H, M> p, deparser<H> dprs);

#endif
