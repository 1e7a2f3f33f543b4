// The `ebpf_model` architecture: a filter. The declarations that programs written for p4c-ebpf expect.
//
// P4 Shield's behaviour where the architecture does not specify it:
// - A packet passes unchanged if the filter sets `accept`. It is dropped otherwise, and if the parser rejects it.
// - The filter's writes to headers are discarded: there is no deparser.
// - A counter index out of range has no effect. Dense and sparse counters are stored the same way.
#ifndef _EBPF_MODEL_P4_
#define _EBPF_MODEL_P4_

#include <core.p4>

/// Counters of 32 bits from index 0 to max_index - 1, all 0 at load.
extern CounterArray {
    CounterArray(bit<32> max_index, bool sparse);
    /// Adds one.
    void increment(in bit<32> index);
    /// Adds `value`.
    void add(in bit<32> index, in bit<32> value);
}

/// How a table is kept, and its size. P4 Shield chooses by the match kinds, and takes the size.
extern array_table {
    array_table(bit<32> size);
}
/// As array_table.
extern hash_table {
    hash_table(bit<32> size);
}

parser parse<H>(packet_in packet, out H headers);
control filter<H>(inout H headers, out bool accept);

package ebpfFilter<H>(parse<H> prs, filter<H> filt);

#endif
