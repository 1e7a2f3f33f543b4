//! Measurement of a page's speed. It depends on the cache attribute of a device's memory, which the
//! hypervisor and the processor select.

use std::time::Instant;

use p4shield_abi::info::SNAPSHOT_SIZE;
use p4shield_abi::info_page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_abi::page::{SALT_SIZE, TAG_SIZE};
use p4shield_channel::{PageFault, PageReader, PageWriter, SharedMemory};
use serde::Serialize;

use super::device::Device;
use super::watch::map;
use super::{PageLocation, PageMemory};
use crate::error::AgentError;

/// Average times of one info page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Kind of mapping: `file`, `device, uncached` or `device, write-combining`.
    pub mapping: &'static str,
    /// Nanoseconds per publication.
    pub publish_ns: f64,
    /// Nanoseconds per read.
    pub read_ns: f64,
}

/// Publishes and reads `times` times at `location`, with each kind of mapping. This overwrites the page,
/// and a P4 VM that reads it sees forgeries: measure on an unused page.
///
/// # Errors
///
/// If the page cannot be mapped.
pub fn measure(location: &PageLocation, times: u32) -> Result<Vec<Measurement>, AgentError> {
    let device = match location {
        PageLocation::File(path) => {
            let open = || {
                SharedMemory::open_file(path, INFO_PAGE_SIZE)
                    .map(PageMemory::from)
                    .map_err(|source| AgentError::Page { path: path.clone(), source })
            };
            return Ok(vec![run("file", open()?, open()?, times)?]);
        }
        PageLocation::Device(address) => Device::at(*address, INFO_PAGE_SIZE as u64)?,
        PageLocation::AnyDevice => Device::find(INFO_PAGE_SIZE as u64)?,
    };
    let mut measurements = Vec::new();
    for (combine, mapping) in [(false, "device, uncached"), (true, "device, write-combining")] {
        let [(one, combined), (other, _)] =
            [map(&device, INFO_PAGE_SIZE, combine)?, map(&device, INFO_PAGE_SIZE, combine)?];
        if combined == combine {
            measurements.push(run(mapping, one, other, times)?);
        }
    }
    Ok(measurements)
}

/// Publishes through one mapping of a page and reads through the other.
fn run(
    mapping: &'static str,
    write: PageMemory,
    read: PageMemory,
    times: u32,
) -> Result<Measurement, AgentError> {
    let mut writer = PageWriter::new(write, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE)?;
    let reader = PageReader::new(read, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE)?;
    let mut sealed = vec![0x5a; SALT_SIZE + SNAPSHOT_SIZE + TAG_SIZE];
    let publish_ns = each(times, |counter| writer.publish(0, counter, &sealed).map(drop))?;
    let read_ns = each(times, |_| reader.newest(&mut sealed).map(drop))?;
    Ok(Measurement { mapping, publish_ns, read_ns })
}

/// Returns the average nanoseconds per call.
fn each(times: u32, mut call: impl FnMut(u64) -> Result<(), PageFault>) -> Result<f64, AgentError> {
    let start = Instant::now();
    for i in 0..times {
        call(u64::from(i)).map_err(AgentError::Measure)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(times.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        drop(SharedMemory::create_file(&path, INFO_PAGE_SIZE, 0o600).unwrap());
        let measurements = measure(&PageLocation::File(path), 100).unwrap();
        assert!(
            measurements.len() == 1 && measurements[0].publish_ns > 0.0 && measurements[0].read_ns > 0.0,
            "{measurements:?}"
        );
    }
}
