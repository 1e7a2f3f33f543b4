//! PREVAIL's view of our platform: the context, the helpers and the maps of a program.
//!
//! This module is the contract between the proof and the engine. A prototype that promises more than
//! the helper keeps (a pointer that may be null, memory that the helper does not fill, a packet that it
//! moves) breaks the sandbox, so the comments state what each helper has to guarantee.

use p4shield_abi::context::{CONTEXT_SIZE, offset};
use p4shield_abi::{channel, helper, map};
use prevail::elf_loader::UnmarshalError;
use prevail::linux::spec_prototypes::{HelperPrototype, map_type_bit};
use prevail::platform::EbpfPlatform;
use prevail::spec::config::{EbpfRuntimeConfig, EbpfVerifierOptions};
use prevail::spec::ebpf_base::EbpfArgumentType::{
    Anything, ConstSize, DontCare, PtrToCtx, PtrToMap, PtrToMapKey, PtrToMapValue, PtrToReadableMem,
    PtrToWritableMem,
};
use prevail::spec::ebpf_base::{EbpfArgumentType, EbpfCtxDescriptor, EbpfReturnType};
use prevail::spec::type_descriptors::{
    EbpfMapDescriptor, EbpfMapType, EbpfMapValueType, EbpfProgramType, ProgramInfo,
};

use crate::linked::Map;

/// Size of a function's stack frame, which extends downwards from [`crate::insn::Reg::FRAME`].
pub const STACK_FRAME_BYTES: usize = 512;

/// Maximum number of active functions, including the entry. Their frames are adjacent, because a
/// function may receive a pointer into its caller's frame.
pub const MAX_FRAMES: usize = 8;

/// Maximum length of a packet buffer: the largest header, grown into the whole headroom. Programs may
/// rely on this bound for `data_end - data`, so the engine must not run longer packets.
pub const MAX_PACKET_BYTES: usize = (channel::MAX_HEADER_BYTES + channel::MAX_HEADROOM) as usize;

/// The context. The bytes besides `data` and `data_end` are writable numbers.
static CONTEXT: EbpfCtxDescriptor = EbpfCtxDescriptor {
    size: CONTEXT_SIZE as i32,
    data: offset::DATA as i32,
    end: offset::DATA_END as i32,
    meta: -1,
};

/// PREVAIL derives the width of a packet pointer from the distance of the two fields.
const _: () = assert!(offset::DATA_END - offset::DATA == 8);

const KNOWN_MAP_TYPES: u64 = map_type_bit(map::TYPE_HASH)
    | map_type_bit(map::TYPE_ARRAY)
    | map_type_bit(map::TYPE_LPM_TRIE)
    | map_type_bit(map::TYPE_CLASSIFIER);
/// PREVAIL stores sets of map types in 64 bits.
const _: () = assert!(map_type_bit(map::TYPE_CLASSIFIER) != 0);

const fn prototype(
    name: &'static str,
    return_type: EbpfReturnType,
    argument_type: [EbpfArgumentType; 5],
) -> HelperPrototype {
    HelperPrototype {
        name,
        return_type,
        argument_type,
        reallocate_packet: false,
        ctx_descriptor: None,
        unsupported: false,
        might_sleep: false,
        zero_args_mask: 0,
        allowed_map_types: KNOWN_MAP_TYPES,
    }
}

const fn number(name: &'static str, arguments: [EbpfArgumentType; 5]) -> HelperPrototype {
    prototype(name, EbpfReturnType::Integer, arguments)
}

const fn resizes_packet(name: &'static str) -> HelperPrototype {
    let mut p = number(name, CTX_1);
    p.reallocate_packet = true;
    p
}

const CTX: [EbpfArgumentType; 5] = [PtrToCtx, DontCare, DontCare, DontCare, DontCare];
const CTX_1: [EbpfArgumentType; 5] = [PtrToCtx, Anything, DontCare, DontCare, DontCare];
const CTX_3: [EbpfArgumentType; 5] = [PtrToCtx, Anything, Anything, Anything, DontCare];
const KEY: [EbpfArgumentType; 5] = [PtrToMap, PtrToMapKey, DontCare, DontCare, DontCare];
const VALUE: [EbpfArgumentType; 5] = [PtrToMap, PtrToMapKey, PtrToMapValue, Anything, DontCare];
const READ: [EbpfArgumentType; 5] = [PtrToReadableMem, ConstSize, Anything, DontCare, DontCare];
const READ_3: [EbpfArgumentType; 5] = [PtrToReadableMem, ConstSize, Anything, Anything, Anything];
const WRITE: [EbpfArgumentType; 5] = [PtrToWritableMem, ConstSize, Anything, DontCare, DontCare];

static PROTOTYPES: [(u32, HelperPrototype); 17] = [
    // The value consists of `value_size` readable and writable bytes until the program ends, even if the
    // entry is deleted meanwhile. Key and value of an update may lie in the map itself.
    (helper::MAP_LOOKUP_ELEM, prototype("map_lookup_elem", EbpfReturnType::PtrToMapValueOrNull, KEY)),
    (helper::MAP_UPDATE_ELEM, number("map_update_elem", VALUE)),
    (helper::MAP_DELETE_ELEM, number("map_delete_elem", KEY)),
    (helper::KTIME_GET_NS, number("ktime_get_ns", [DontCare; 5])),
    (helper::GET_PRANDOM_U32, number("get_prandom_u32", [DontCare; 5])),
    // Both guarantee `0 <= data_end - data <= MAX_PACKET_BYTES` afterwards, for any delta.
    (helper::ADJUST_HEAD, resizes_packet("adjust_head")),
    (helper::ADJUST_TAIL, resizes_packet("adjust_tail")),
    (helper::READ_VM_INFO, number("read_vm_info", CTX_1)),
    (helper::VM_INFO_STATUS, number("vm_info_status", CTX)),
    (helper::VM_INFO_KNOWN, number("vm_info_known", CTX_1)),
    // Reads `size` bytes and keeps no reference to them.
    (helper::HASH, number("hash", READ)),
    (helper::PAYLOAD_SUM, number("payload_sum", CTX_1)),
    // Reads and writes at most `size` bytes. Reading is safe because the stack is always initialised.
    (helper::METER, number("meter", WRITE)),
    (helper::PACKET_KEEP, number("packet_keep", CTX)),
    // Writes only packet bytes within the header copy, and does not move the packet.
    (helper::PACKET_PUT, number("packet_put", CTX_3)),
    (helper::PACKET_EQUAL, number("packet_equal", CTX_3)),
    // As `hash`; checks the offsets into the packet itself.
    (helper::HASH_WITH, number("hash_with", READ_3)),
];
static UNKNOWN: HelperPrototype = HelperPrototype { unsupported: true, ..number("unknown", [DontCare; 5]) };

/// Returns the prototype of a helper, if the helper exists.
fn helper_prototype(number: u32) -> Option<&'static HelperPrototype> {
    PROTOTYPES.iter().find(|(n, _)| *n == number).map(|(_, prototype)| prototype)
}

/// Returns the name of a helper, if the helper exists.
pub(super) fn helper_name(number: u32) -> Option<&'static str> {
    helper_prototype(number).map(|p| p.name)
}

/// Implementation of PREVAIL's `EbpfPlatform` for the maps of one program.
pub(super) struct Platform {
    maps: Vec<EbpfMapDescriptor>,
}

impl Platform {
    pub(super) fn new(maps: &[Map]) -> Self {
        let describe = |index: usize, name: &str, d: &map::MapDefinition| EbpfMapDescriptor {
            original_fd: index as i32,
            map_type: d.map_type,
            key_size: d.key_size,
            value_size: d.value_size,
            max_entries: d.max_entries,
            inner_map_fd: -1,
            name: name.to_owned(),
            is_inner_map_template: false,
        };
        let unknown = map::MapDefinition {
            map_type: map::TYPE_ARRAY,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            flags: 0,
        };
        let named = maps.iter().map(|m| (m.name.as_str(), &m.definition)).chain([("unknown", &unknown)]);
        Self { maps: named.enumerate().map(|(index, (name, d))| describe(index, name, d)).collect() }
    }

    /// Returns the index of an eight-byte map that no program can reference. [`super::rewrite`] reads from
    /// it to express that a value is unknown.
    pub(super) fn unknown_map(&self) -> i32 {
        self.maps.len() as i32 - 1
    }

    pub(super) fn program_info(&self) -> ProgramInfo {
        ProgramInfo {
            map_descriptors: self.maps.clone(),
            program_type: self.get_program_type("", ""),
            supported_conformance_groups: self.supported_conformance_groups(),
            ..ProgramInfo::default()
        }
    }
}

/// PREVAIL's options.
pub(super) fn options() -> EbpfVerifierOptions {
    EbpfVerifierOptions {
        runtime: EbpfRuntimeConfig {
            strict: true,
            allow_division_by_zero: true,
            setup_constraints: true,
            big_endian: false,
            check_for_termination: true,
            subprogram_stack_size: STACK_FRAME_BYTES as i32,
            max_call_stack_frames: MAX_FRAMES as i32,
            // PREVAIL reads it as "less than".
            max_packet_size: MAX_PACKET_BYTES as i32 + 1,
        },
        must_have_exit: true,
        mock_map_fds: false,
        ..EbpfVerifierOptions::default()
    }
}

impl EbpfPlatform for Platform {
    fn get_program_type(&self, _section: &str, _path: &str) -> EbpfProgramType {
        EbpfProgramType {
            name: "p4".to_owned(),
            ctx_descriptor: Some(&CONTEXT),
            platform_specific_data: 0,
            section_prefixes: vec!["p4".to_owned()],
            // An unprivileged program must not reveal an address.
            is_privileged: false,
            is_sleepable: false,
        }
    }

    fn get_helper_prototype(&self, n: i32) -> &HelperPrototype {
        self.try_get_helper_prototype(n).unwrap_or(&UNKNOWN)
    }

    fn try_get_helper_prototype(&self, n: i32) -> Option<&HelperPrototype> {
        helper_prototype(u32::try_from(n).ok()?)
    }

    fn is_helper_usable(&self, n: i32) -> bool {
        self.try_get_helper_prototype(n).is_some()
    }

    /// Unused: it serves ELF files, and PREVAIL only receives programs from our linker.
    fn map_record_size(&self) -> usize {
        map::MAP_DEFINITION_SIZE
    }

    fn parse_maps_section(
        &mut self,
        _descriptors: &mut Vec<EbpfMapDescriptor>,
        _data: &[u8],
        _record_size: usize,
        _count: usize,
        _options: &EbpfVerifierOptions,
    ) {
    }

    fn resolve_inner_map_references(
        &self,
        _descriptors: &mut Vec<EbpfMapDescriptor>,
    ) -> Result<(), UnmarshalError> {
        Ok(())
    }

    fn get_map_descriptor(&self, map_fd: i32) -> Option<&EbpfMapDescriptor> {
        self.maps.get(usize::try_from(map_fd).ok()?)
    }

    fn get_map_type(&self, platform_specific_type: u32) -> EbpfMapType {
        let name = match platform_specific_type {
            map::TYPE_HASH => "hash",
            map::TYPE_ARRAY => "array",
            map::TYPE_LPM_TRIE => "lpm_trie",
            map::TYPE_CLASSIFIER => "classifier",
            _ => "unknown",
        };
        EbpfMapType {
            platform_specific_type,
            name: name.to_owned(),
            // `true` would require a proof that each index is in range. Our arrays return null for an index
            // out of range, and PREVAIL requires a null check anyway.
            is_array: false,
            value_type: EbpfMapValueType::Any,
        }
    }

    fn supported_conformance_groups(&self) -> u32 {
        prevail::linux::linux_platform::conformance_groups::DEFAULT_GROUPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_and_the_verifier_know_the_same_helpers() {
        for number in 0..=u32::from(u16::MAX) {
            let engine = crate::helpers::find(&crate::helpers::TABLE, number).is_some();
            assert_eq!(helper_prototype(number).is_some(), engine, "helper {number}");
        }
    }

    #[test]
    fn the_engine_and_the_verifier_agree_on_the_stack() {
        assert_eq!(STACK_FRAME_BYTES, crate::env::FRAME_SIZE);
        assert_eq!(MAX_FRAMES, crate::env::MAX_FRAMES);
    }
}
