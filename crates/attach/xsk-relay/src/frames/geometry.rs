//! The geometry of an application's UMEM: its size, its chunks, and the frame of an address.

/// Bits of an address. In unaligned mode the upper bits hold the packet's offset
/// (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const OFFSET_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << OFFSET_SHIFT) - 1;

/// The geometry of a UMEM as the application registered it (`struct xdp_umem_reg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemGeometry {
    len: u64,
    chunk: u32,
    unaligned: bool,
    frame_count: u32,
}

/// A UMEM that the kernel does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid UMEM: {len} bytes in chunks of {chunk}")]
pub struct UmemGeometryError {
    /// Bytes of the UMEM.
    pub len: u64,
    /// Bytes of a chunk.
    pub chunk: u32,
}

/// An address, split into frame number and offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameAddress {
    /// Number of the frame.
    pub frame: u32,
    /// Bytes from the start of the chunk to the address without its offset.
    pub start: u16,
    /// The offset from the upper bits of an unaligned-mode address; 0 in aligned mode.
    pub offset: u16,
}

impl UmemGeometry {
    /// Describes `len` bytes in chunks of `chunk` bytes, which may start at any address if `unaligned`.
    ///
    /// # Errors
    /// [`UmemGeometryError`] for values that the kernel refuses.
    pub fn new(len: u64, chunk: u32, unaligned: bool) -> Result<Self, UmemGeometryError> {
        let refused = UmemGeometryError { len, chunk };
        let fits = (64..=1 << 16).contains(&chunk)
            && (unaligned || chunk.is_power_of_two())
            && (u64::from(chunk)..=ADDRESS).contains(&len);
        if !fits {
            return Err(refused);
        }
        // A rest shorter than a chunk is not a frame in aligned mode, and may be the end of one in
        // unaligned mode.
        let frame_count = if unaligned { len.div_ceil(chunk.into()) } else { len / u64::from(chunk) };
        // Ring histories use the highest number for "no frame".
        let frame_count = u32::try_from(frame_count).ok().filter(|&c| c < u32::MAX).ok_or(refused)?;
        Ok(Self { len, chunk, unaligned, frame_count })
    }

    /// Returns the number of frames; in unaligned mode, of chunk-sized slots, in each of which at most
    /// one frame starts.
    #[must_use]
    pub const fn frame_count(&self) -> u32 {
        self.frame_count
    }

    /// Returns the bytes of the UMEM.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns false: a UMEM has at least one chunk.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of a chunk.
    #[must_use]
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Returns whether chunks may start at any address.
    #[must_use]
    pub const fn unaligned(&self) -> bool {
        self.unaligned
    }

    /// Splits an address from a ring. `None` if it is outside every frame.
    #[must_use]
    pub fn locate(&self, address: u64) -> Option<FrameAddress> {
        let (base, offset) = self.split(address);
        let frame = u32::try_from(base / u64::from(self.chunk)).ok().filter(|&c| c < self.frame_count)?;
        // A chunk has at most 2^16 bytes.
        Some(FrameAddress { frame, start: (base % u64::from(self.chunk)) as u16, offset })
    }

    /// Returns the address that [`UmemGeometry::locate`] splits into `at`.
    #[must_use]
    pub fn address(&self, at: FrameAddress) -> u64 {
        let base = u64::from(at.frame) * u64::from(self.chunk) + u64::from(at.start);
        base | u64::from(at.offset) << OFFSET_SHIFT
    }

    /// Returns the address of the frame's first byte, for the fill ring.
    #[must_use]
    pub fn frame_start(&self, at: FrameAddress) -> u64 {
        self.address(FrameAddress { start: if self.unaligned { at.start } else { 0 }, offset: 0, ..at })
    }

    /// Returns the offset of a packet's first byte in the UMEM, if the whole packet lies within one frame.
    #[must_use]
    pub fn packet_start(&self, address: u64, len: u32) -> Option<u64> {
        let (base, offset) = self.split(address);
        let start = base + u64::from(offset);
        let end = start + u64::from(len);
        let last = if self.unaligned { self.len } else { self.frame_end(base) };
        (end <= last).then_some(start)
    }

    /// Returns the byte range of the frame, within which a packet may grow into headroom and tailroom.
    #[must_use]
    pub fn frame_range(&self, address: u64) -> std::ops::Range<u64> {
        let (base, _) = self.split(address);
        if self.unaligned {
            base..(base + u64::from(self.chunk)).min(self.len)
        } else {
            let end = self.frame_end(base);
            end - u64::from(self.chunk)..end
        }
    }

    /// Returns the ring address for a packet of the same frame that starts at offset `start` of the UMEM.
    #[must_use]
    pub fn ring_address(&self, address: u64, start: u64) -> Option<u64> {
        if !self.frame_range(address).contains(&start) {
            return None;
        }
        let (base, _) = self.split(address);
        Some(if self.unaligned { base | (start - base) << OFFSET_SHIFT } else { start })
    }

    const fn frame_end(&self, base: u64) -> u64 {
        (base / self.chunk as u64 + 1) * self.chunk as u64
    }

    const fn split(&self, address: u64) -> (u64, u16) {
        if self.unaligned { (address & ADDRESS, (address >> OFFSET_SHIFT) as u16) } else { (address, 0) }
    }
}
