//! Carries the daemon's requests to the P4 VM in the virtual machine: their resources become regions, bytes
//! and doorbells there.

use crate::error::VmmError;
use crate::guest::Guest;
use crate::qmp::{Qmp, QmpError};
use crate::regions::{Region, RegionError, Regions};
use p4shield_channel::Doorbell;
use p4shield_control::{Delivered, Envelope, Reply, Request, ResourceKind, encode};
use p4shield_line::{Attachment, CarriedRequest, Rings};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

/// The virtual machine with what was plugged into it.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) guest: Guest,
    qemu: Qmp,
    rings: Rings,
    regions: Regions,
    /// True if the guest maps them with write combining.
    write_combining: bool,
    /// By user VM: the regions of its pages.
    pages: BTreeMap<u16, Vec<Region>>,
    /// By the host's number: the regions of channels, which have the numbers of their doorbells.
    channels: BTreeMap<u32, Region>,
}

/// Reason why a request is not carried.
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
    pub(crate) fn new(guest: Guest, qemu: Qmp, rings: Rings, write_combining: bool) -> Self {
        let (pages, channels) = (BTreeMap::new(), BTreeMap::new());
        Self { guest, qemu, rings, regions: Regions::default(), write_combining, pages, channels }
    }

    /// Carries a request and returns the reply's bytes.
    ///
    /// # Errors
    /// The virtual machine is unusable.
    pub(crate) fn carry(
        &mut self,
        id: u32,
        request: &Request,
        resources: Delivered,
    ) -> Result<Vec<u8>, VmmError> {
        match self.try_to_carry(id, request, resources) {
            Ok(reply) => Ok(reply),
            Err(Refusal::Failed(why)) => Ok(encode(&Envelope { id, body: Reply::Failed(why) })?),
            Err(Refusal::Fatal(error)) => Err(error),
        }
    }

    fn try_to_carry(&mut self, id: u32, request: &Request, resources: Delivered) -> Result<Vec<u8>, Refusal> {
        let Translation { attachments, plugged } = self.translate(request, resources)?;
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

    /// Finds what stands for the resources of a request.
    fn translate(&mut self, request: &Request, resources: Delivered) -> Result<Translation, Refusal> {
        let mut translation = Translation::default();
        match self.translate_all(request, resources, &mut translation) {
            Ok(()) => Ok(translation),
            Err(refusal) => {
                self.discard(request, translation.plugged)?;
                Err(refusal)
            }
        }
    }

    fn translate_all(
        &mut self,
        request: &Request,
        mut resources: Delivered,
        to: &mut Translation,
    ) -> Result<(), Refusal> {
        let mut named = request.resources();
        named.sort_by_key(|(id, _)| *id);
        for (id, kind) in named {
            let file = resources.take(id).map_err(|e| Refusal::Failed(e.to_string()))?;
            let attachment = match kind {
                ResourceKind::Region(len) => self.plug(&file, len, &mut to.plugged)?,
                ResourceKind::Bytes(most) => Attachment::Bytes(read(&file, most)?),
                ResourceKind::Doorbell => self.connect(file, &to.plugged)?,
                ResourceKind::PacketMemory => return Err(Refusal::stays("packet memory of a switch")),
                ResourceKind::Local => return Err(Refusal::stays("socket of its host")),
            };
            to.attachments.push(attachment);
        }
        Ok(())
    }

    fn plug(&mut self, file: &OwnedFd, len: u64, plugged: &mut Vec<Region>) -> Result<Attachment, Refusal> {
        let region = self.regions.plug(&mut self.qemu, file.as_fd(), len)?;
        let (bridge, slot) = (region.bridge(), region.slot());
        plugged.push(region);
        // QEMU's memory behind a register is ordinary memory. Uncached mappings, which the daemon's P4 VMs
        // have, keep the order of stores; see decision 038.
        Ok(Attachment::Region { bridge, slot, len, write_combining: self.write_combining })
    }

    /// Gives a doorbell the number of the region that it belongs to, which its request names before it.
    fn connect(&self, doorbell: OwnedFd, plugged: &[Region]) -> Result<Attachment, Refusal> {
        let region = plugged.last().ok_or_else(|| Refusal::stays("doorbell without memory"))?;
        self.rings.add(region.number, Doorbell::from_fd(doorbell));
        Ok(Attachment::Doorbell(region.number))
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

impl Refusal {
    /// What a P4 VM on the host can have and one in a virtual machine cannot.
    fn stays(what: &str) -> Self {
        Self::Failed(format!("a P4 VM in a virtual machine has no {what}"))
    }
}

/// Reads a file of at most `most` bytes.
fn read(file: &OwnedFd, most: usize) -> Result<Vec<u8>, Refusal> {
    let mut bytes = vec![0; most];
    let mut len = 0;
    while len < most {
        match rustix::io::pread(file, &mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Refusal::Failed(format!("cannot read what came with the request: {e}"))),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
