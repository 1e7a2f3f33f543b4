//! The network interfaces of virtual functions.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::device::Device;
use crate::NicError;

/// Where a device is given to a driver that knows it.
const PROBE: &str = "/sys/bus/pci/drivers_probe";
/// The longest time for a driver to make its interface.
const START: Duration = Duration::from_secs(10);

/// A virtual function as a device of its own.
#[derive(Debug)]
pub(super) struct FunctionDevice<'a> {
    card: &'a Device<'a>,
    number: u32,
    folder: PathBuf,
}

impl<'a> FunctionDevice<'a> {
    pub(super) fn of(card: &'a Device<'a>, number: u32) -> Result<Self, NicError> {
        let link = card.folder().join(format!("virtfn{number}"));
        let folder = link.canonicalize().map_err(|e| {
            card.refusal(format_args!("virtual function {number} is no device of the host: {e}"))
        })?;
        Ok(Self { card, number, folder })
    }

    /// Returns its PCI address.
    pub(super) fn address(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Starts its driver anew, which so reads the MAC address. Returns its interface, which is in the host's
    /// first network namespace, wherever an interface of it was before.
    pub(super) fn restart(&self) -> Result<String, NicError> {
        let address = self.address();
        let driver = self.folder.join("driver");
        if driver.exists() {
            self.write(&driver.join("unbind"), &address)?;
        }
        self.write(Path::new(PROBE), &address)?;
        let end = Instant::now() + START;
        loop {
            match self.interface() {
                Ok(Some(name)) => return Ok(name),
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
                Ok(None) => return Err(self.without_interface(&driver)),
                Err(error) => return Err(self.failure("list the interfaces of", &error)),
            }
        }
    }

    /// Returns its interface in this network namespace.
    fn interface(&self) -> io::Result<Option<String>> {
        let entries = match fs::read_dir(self.folder.join("net")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let first = entries.into_iter().next().transpose()?;
        Ok(first.map(|entry| entry.file_name().to_string_lossy().into_owned()))
    }

    fn without_interface(&self, driver: &Path) -> NicError {
        let name = driver.canonicalize().ok();
        let name = name.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let reason = match name {
            Some(name) => format!("its driver {name} makes no network interface here"),
            None => "no driver takes it; load the module of its network driver".to_owned(),
        };
        self.refusal(reason)
    }

    fn write(&self, file: &Path, text: &str) -> Result<(), NicError> {
        fs::write(file, text).map_err(|error| self.failure(&format!("write {} for", file.display()), &error))
    }

    fn failure(&self, step: &str, error: &io::Error) -> NicError {
        self.refusal(format!("cannot {step} it: {error}"))
    }

    fn refusal(&self, reason: String) -> NicError {
        let Self { number, .. } = self;
        self.card.refusal(format_args!("virtual function {number} ({}): {reason}", self.address()))
    }
}
