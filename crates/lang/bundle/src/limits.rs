//! Version of the format, and limits of its contents.

/// Version of the format.
pub const FORMAT: u32 = 1;
/// The most bytes of a bundle.
pub const MAX_BUNDLE: usize = 12 << 20;
/// The most bytes of all objects of one program. The P4 VM has the same limit.
pub const MAX_OBJECTS: usize = 4 << 20;
/// The most objects of one program.
pub(crate) const MAX_OBJECT_COUNT: usize = 16;
/// The most bytes of one program's P4Info.
pub const MAX_P4INFO: usize = 1 << 20;
/// The most initial entries of one program.
pub const MAX_ENTRIES: usize = 1 << 16;
/// The most health checks.
pub const MAX_CHECKS: usize = 64;
/// The most bytes of a name. Tenants and VMs have the same limit in a P4 VM.
pub const MAX_NAME: usize = 64;
/// The least number of header bytes that a bundle can demand: an Ethernet header.
pub const MIN_HEADER_BYTES: u32 = 14;
/// The most bytes of a map's symbol.
pub(crate) const MAX_MAP_NAME: usize = 512;
/// The most bytes of a key or value.
pub(crate) const MAX_ENTRY_BYTES: usize = 64 << 10;
