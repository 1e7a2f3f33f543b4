//! Size and shape of an application's packet memory: which frame an address is in.

/// Bits of an address; above them unaligned mode keeps the packet's offset (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const OFFSET_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << OFFSET_SHIFT) - 1;

/// Packet memory as the application registered it (`struct xdp_umem_reg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    len: u64,
    chunk: u32,
    unaligned: bool,
    cells: u32,
}

/// Packet memory that the kernel would not have accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet memory of {len} bytes in chunks of {chunk} cannot be")]
pub struct ShapeError {
    /// Bytes of the memory.
    pub len: u64,
    /// Bytes of a chunk.
    pub chunk: u32,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the frame.
    pub cell: u32,
    /// Bytes from the start of the cell to the address without its offset.
    pub start: u16,
    /// The offset that unaligned mode keeps in the upper bits of an address; else 0.
    pub offset: u16,
}

impl Shape {
    /// The shape of `len` bytes in chunks of `chunk`, which begin anywhere if `unaligned`.
    ///
    /// # Errors
    /// [`ShapeError`] for numbers that the kernel refuses.
    pub fn new(len: u64, chunk: u32, unaligned: bool) -> Result<Self, ShapeError> {
        let refused = ShapeError { len, chunk };
        let fits = (64..=1 << 16).contains(&chunk)
            && (unaligned || chunk.is_power_of_two())
            && (u64::from(chunk)..=ADDRESS).contains(&len);
        if !fits {
            return Err(refused);
        }
        // A last piece shorter than a chunk is no frame where chunks are aligned, and may be the end of one else.
        let cells = if unaligned { len.div_ceil(chunk.into()) } else { len / u64::from(chunk) };
        // The highest number stands for "none" in tracks.
        let cells = u32::try_from(cells).ok().filter(|&c| c < u32::MAX).ok_or(refused)?;
        Ok(Self { len, chunk, unaligned, cells })
    }

    /// Number of frames. In unaligned mode, the number of chunk-sized cells; at most one frame begins in each.
    #[must_use]
    pub const fn cells(&self) -> u32 {
        self.cells
    }

    /// Bytes of the memory.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes; it always has.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of a chunk.
    #[must_use]
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Whether chunks begin anywhere.
    #[must_use]
    pub const fn unaligned(&self) -> bool {
        self.unaligned
    }

    /// The frame that an address in a ring is in, or `None` if it is in none.
    #[must_use]
    pub fn locate(&self, address: u64) -> Option<Place> {
        let (base, offset) = self.split(address);
        let cell = u32::try_from(base / u64::from(self.chunk)).ok().filter(|&c| c < self.cells)?;
        // A chunk has at most 2^16 bytes.
        Some(Place { cell, start: (base % u64::from(self.chunk)) as u16, offset })
    }

    /// The address in a ring that [`Shape::locate`] takes apart.
    #[must_use]
    pub fn address(&self, place: Place) -> u64 {
        let base = u64::from(place.cell) * u64::from(self.chunk) + u64::from(place.start);
        base | u64::from(place.offset) << OFFSET_SHIFT
    }

    /// First byte of the frame at `place`, which the kernel writes a packet to if it is given that address.
    #[must_use]
    pub fn base(&self, place: Place) -> u64 {
        self.address(Place { start: if self.unaligned { place.start } else { 0 }, offset: 0, ..place })
    }

    /// Where the bytes of a packet lie in the memory, if all of them lie within one frame.
    #[must_use]
    pub fn bytes(&self, address: u64, len: u32) -> Option<u64> {
        let (base, offset) = self.split(address);
        let start = base + u64::from(offset);
        let end = start + u64::from(len);
        let last = if self.unaligned { self.len } else { self.frame_end(base) };
        (end <= last).then_some(start)
    }

    /// The bytes that a packet of a frame may use for head room and tail room: from the frame's first byte on.
    #[must_use]
    pub fn room(&self, address: u64) -> std::ops::Range<u64> {
        let (base, _) = self.split(address);
        if self.unaligned {
            base..(base + u64::from(self.chunk)).min(self.len)
        } else {
            let end = self.frame_end(base);
            end - u64::from(self.chunk)..end
        }
    }

    /// The address in a ring for a packet of the same frame whose bytes begin at `start` in the memory.
    #[must_use]
    pub fn readdress(&self, address: u64, start: u64) -> Option<u64> {
        if !self.room(address).contains(&start) {
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
