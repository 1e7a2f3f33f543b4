//! Carries the daemon's requests to the P4 VM in the virtual machine: descriptors become regions, bytes and
//! doorbells there.

use crate::error::VmmError;
use crate::guest::Guest;
use crate::qmp::{Qmp, QmpError};
use crate::regions::{Region, RegionError, Regions};
use p4shield_abi::channel::Geometry;
use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_channel::Doorbell;
use p4shield_control::{Envelope, MAX_BUNDLE, MAX_OBJECTS, Reply, Request, WireGeometry, encode};
use p4shield_line::{Attachment, CarriedRequest, Rings};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most bytes of a file with a key. The P4 VM checks the exact size.
const MAX_KEY: usize = 64;

/// The virtual machine with what was plugged into it.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) guest: Guest,
    qemu: Qmp,
    rings: Rings,
    regions: Regions,
    /// By user VM: the regions of its pages.
    pages: BTreeMap<u16, Vec<Region>>,
    /// By the host's number: the regions of channels, which have the numbers of their doorbells.
    channels: BTreeMap<u32, Region>,
}

/// Why a request is not carried.
enum Refusal {
    /// The P4 VM goes on.
    Failed(String),
    /// The virtual machine is unusable.
    Fatal(VmmError),
}

impl<E: Into<VmmError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

impl From<RegionError> for Refusal {
    fn from(error: RegionError) -> Self {
        match error {
            RegionError::Full | RegionError::Length(_) | RegionError::Qemu(QmpError::Refused { .. }) => {
                Self::Failed(error.to_string())
            }
            RegionError::Qemu(error) => Self::Fatal(error.into()),
        }
    }
}

/// What a request becomes.
#[derive(Default)]
struct Translation {
    attachments: Vec<Attachment>,
    /// Regions that were plugged for it.
    plugged: Vec<Region>,
}

impl Carrier {
    pub(crate) fn new(guest: Guest, qemu: Qmp, rings: Rings) -> Self {
        let (pages, channels) = (BTreeMap::new(), BTreeMap::new());
        Self { guest, qemu, rings, regions: Regions::default(), pages, channels }
    }

    /// Carries a request and returns the reply's bytes.
    ///
    /// # Errors
    /// The virtual machine is unusable.
    pub(crate) fn carry(
        &mut self,
        id: u32,
        request: &Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Vec<u8>, VmmError> {
        match self.try_to_carry(id, request, descriptors) {
            Ok(reply) => Ok(reply),
            Err(Refusal::Failed(why)) => Ok(encode(&Envelope { id, body: Reply::Failed(why) })?),
            Err(Refusal::Fatal(error)) => Err(error),
        }
    }

    fn try_to_carry(
        &mut self,
        id: u32,
        request: &Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Vec<u8>, Refusal> {
        let Translation { attachments, plugged } = self.translate(request, descriptors)?;
        let message = encode(&Envelope { id, body: request })?;
        let request_to_guest = CarriedRequest { message, attachments, unix_ns: unix_ns() };
        let (reply, bytes) = self.guest.call(&request_to_guest)?;
        if matches!(reply.body, Reply::Failed(_) | Reply::Refused(_)) {
            self.discard(request, plugged)?;
        } else {
            self.settle(request, plugged)?;
        }
        Ok(bytes)
    }

    /// Finds what stands for the descriptors of a request.
    fn translate(&mut self, request: &Request, descriptors: Vec<OwnedFd>) -> Result<Translation, Refusal> {
        let mut translation = Translation::default();
        let result = match request {
            Request::SetVm { info, log, handshake, .. } => {
                let sizes = [
                    (*info, INFO_PAGE_SIZE),
                    (*log, LOG_PAGE_SIZE),
                    (handshake.is_some(), HANDSHAKE_PAGE_SIZE),
                ];
                let sizes = sizes.into_iter().filter_map(|(present, size)| present.then_some(size as u64));
                self.carry_pages(sizes.collect(), &descriptors, &mut translation)
            }
            Request::SetKeys { .. } => carry_bytes(&descriptors, MAX_KEY, &mut translation),
            Request::LoadProgram { objects, .. } | Request::StageProgram { objects, .. } => {
                carry_bytes(&descriptors, bytes_of(objects)?, &mut translation)
            }
            Request::LoadBundle(bundle) | Request::StageBundle(bundle) => {
                carry_bytes(&descriptors, (bundle.len as usize).min(MAX_BUNDLE), &mut translation)
            }
            Request::AttachChannel { packets: Some(_), .. } => Err(Refusal::Failed(
                "a P4 VM in a virtual machine maps no packet memory of a switch".to_owned(),
            )),
            Request::AttachChannel { geometry, .. } => {
                self.carry_channel(*geometry, descriptors, &mut translation)
            }
            // The door stays on the host.
            _ => Ok(()),
        };
        match result {
            Ok(()) => Ok(translation),
            Err(refusal) => {
                self.discard(request, translation.plugged)?;
                Err(refusal)
            }
        }
    }

    /// Plugs the pages, which come first, and copies the keys.
    fn carry_pages(
        &mut self,
        sizes: Vec<u64>,
        descriptors: &[OwnedFd],
        translation: &mut Translation,
    ) -> Result<(), Refusal> {
        let (pages, keys) = descriptors.split_at_checked(sizes.len()).ok_or_else(missing)?;
        for (page, len) in pages.iter().zip(sizes) {
            self.plug(page.as_fd(), len, translation)?;
        }
        carry_bytes(keys, MAX_KEY, translation)
    }

    fn carry_channel(
        &mut self,
        geometry: WireGeometry,
        descriptors: Vec<OwnedFd>,
        translation: &mut Translation,
    ) -> Result<(), Refusal> {
        let geometry = Geometry::from(geometry);
        if !geometry.is_valid() {
            return Err(Refusal::Failed(format!("invalid geometry of a channel: {geometry:?}")));
        }
        let [memory, doorbell] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| missing())?;
        let number = self.plug(memory.as_fd(), geometry.size() as u64, translation)?;
        translation.attachments.push(Attachment::Doorbell(number));
        self.rings.add(number, Doorbell::from_fd(doorbell));
        Ok(())
    }

    fn plug(&mut self, file: BorrowedFd<'_>, len: u64, to: &mut Translation) -> Result<u8, Refusal> {
        let region = self.regions.plug(&mut self.qemu, file, len)?;
        let (bridge, slot, number) = (region.bridge(), region.slot(), region.number);
        // QEMU's memory behind a register is ordinary memory. Uncached mappings keep the order of stores; see
        // decision 038.
        to.attachments.push(Attachment::Region { bridge, slot, len, write_combining: false });
        to.plugged.push(region);
        Ok(number)
    }

    /// Remembers the regions of a request that was granted, and removes those that it made superfluous.
    fn settle(&mut self, request: &Request, plugged: Vec<Region>) -> Result<(), VmmError> {
        let superfluous = match request {
            Request::SetVm { vm, .. } => self.pages.insert(*vm, plugged).unwrap_or_default(),
            Request::RemoveVm { vm } => self.pages.remove(vm).unwrap_or_default(),
            Request::AttachChannel { channel, .. } => {
                plugged.into_iter().filter_map(|region| self.channels.insert(*channel, region)).collect()
            }
            Request::DetachChannel { channel } => self.channels.remove(channel).into_iter().collect(),
            _ => Vec::new(),
        };
        self.unplug(superfluous)
    }

    /// Removes what was plugged for a request that was refused. A channel that the P4 VM does not serve
    /// any more goes with the request to detach it.
    fn discard(&mut self, request: &Request, plugged: Vec<Region>) -> Result<(), VmmError> {
        let superfluous = match request {
            Request::DetachChannel { channel } => self.channels.remove(channel).into_iter().collect(),
            _ => plugged,
        };
        self.unplug(superfluous)
    }

    fn unplug(&mut self, regions: Vec<Region>) -> Result<(), VmmError> {
        for region in regions {
            self.rings.remove(region.number);
            self.regions.unplug(&mut self.qemu, &region)?;
        }
        Ok(())
    }
}

fn missing() -> Refusal {
    Refusal::Failed("descriptors of the request are missing".to_owned())
}

/// Returns the bytes of a program's objects.
fn bytes_of(objects: &[u32]) -> Result<usize, Refusal> {
    let total = objects.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n as usize));
    let allowed = total.filter(|n| *n <= MAX_OBJECTS);
    allowed.ok_or_else(|| Refusal::Failed(format!("a program has at most {MAX_OBJECTS} bytes")))
}

/// Copies files of at most `most` bytes each.
fn carry_bytes(files: &[OwnedFd], most: usize, to: &mut Translation) -> Result<(), Refusal> {
    for file in files {
        let mut bytes = vec![0; most];
        let mut len = 0;
        while len < most {
            match rustix::io::pread(file, &mut bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    return Err(Refusal::Failed(format!("cannot read what came with the request: {e}")));
                }
            }
        }
        bytes.truncate(len);
        to.attachments.push(Attachment::Bytes(bytes));
    }
    Ok(())
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
