//! `libp4shield_ethdev.so`: loading, and safe calls of what is used while nothing is forwarded.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use crate::error::Error;
use crate::interface::{Device, ENTRY, Entry, Pool, Table, VERSION};

/// The library's file name.
pub(crate) const FILE: &str = "libp4shield_ethdev.so";
/// The folder of libraries, below an installation's prefix.
const FOLDER: &str = "lib/p4shield";

/// Bytes of DPDK's log that an error shows: its end.
const MAX_LOG: usize = 1500;

/// The loaded library, which stays loaded for the life of the process: DPDK's threads run its code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library(pub(crate) &'static Table);

/// Returns the library of the executable's own installation, or else the one beside the executable.
fn default_path() -> PathBuf {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("/"));
    let installed = folder.parent().unwrap_or(folder).join(FOLDER).join(FILE);
    let beside = folder.join(FILE);
    if beside.is_file() && !installed.is_file() { beside } else { installed }
}

impl Library {
    /// Loads the library from a file, by default that of this installation.
    ///
    /// # Errors
    /// It is missing, damaged, or of another version.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, Error> {
        let path = path.map_or_else(default_path, Path::to_owned);
        let failed = |why: libloading::Error| Error::Load { path: path.clone(), why: chain(&why) };
        // A name without a slash would be searched for in the system's folders.
        let file = if path.is_absolute() { path.clone() } else { Path::new(".").join(&path) };
        // SAFETY: the constructors of our library are those of Rust's standard library and of DPDK, which
        // register its parts. Another library that the user names is the user's to trust.
        let loaded = unsafe { Loaded::open(Some(&file), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
        // SAFETY: the symbol of this name is a function of this type in every version.
        let entry = *unsafe { loaded.get::<Entry>(ENTRY.to_bytes_with_nul()) }.map_err(failed)?;
        // Never unloaded, from here on.
        std::mem::forget(loaded);
        // SAFETY: as above. It returns a constant.
        let table = unsafe { entry() };
        let other = |found| Error::Version { path: path.clone(), found, needed: VERSION };
        if table.is_null() || !table.cast::<Table>().is_aligned() {
            return Err(other(0));
        }
        // SAFETY: every version's table begins with these two numbers, and is never unloaded.
        let [found, size] = unsafe { table.cast::<[u32; 2]>().read() };
        if found != VERSION || size as usize != size_of::<Table>() {
            return Err(other(found));
        }
        // SAFETY: a table of this version has this layout, and is never unloaded.
        Ok(Self(unsafe { &*table.cast::<Table>() }))
    }

    /// Starts EAL with these arguments, the first of which is the program's name. At most once in a process.
    /// Returns the number of arguments that EAL took.
    ///
    /// # Errors
    /// EAL does not start.
    pub(crate) fn init(self, arguments: Vec<CString>) -> io::Result<usize> {
        let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
        let count = pointers.len() as c_int;
        pointers.push(ptr::null_mut());
        // EAL and getopt may keep them.
        let pointers: &'static mut [_] = pointers.leak();
        // SAFETY: an array of C strings that ends with null; both live on, and EAL may change them.
        checked(unsafe { (self.0.init)(count, pointers.as_mut_ptr()) }).map(|n| n as usize)
    }

    /// Returns the end of what DPDK logged in the last call, on one line.
    pub(crate) fn log(self) -> String {
        // SAFETY: a C string of this thread, which only its next call changes.
        let text = unsafe { CStr::from_ptr((self.0.log)()) }.to_string_lossy();
        let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let text = lines.join("; ").replace(|c: char| c.is_control(), " ");
        text[text.floor_char_boundary(text.len().saturating_sub(MAX_LOG))..].to_owned()
    }

    /// Finds a device by its name, or probes it.
    ///
    /// # Errors
    /// DPDK has no such device.
    pub(crate) fn find(self, device: &CStr) -> io::Result<u16> {
        let mut port = 0;
        // SAFETY: a C string, and a place for the number.
        checked(unsafe { (self.0.find)(device.as_ptr(), &raw mut port) }).map(|_| port)
    }

    /// Describes a device.
    ///
    /// # Errors
    /// The device is gone, or does not say.
    pub(crate) fn describe(self, port: u16) -> io::Result<Device> {
        let mut device = Device::default();
        // SAFETY: a place for the description. DPDK checks the number.
        checked(unsafe { (self.0.describe)(port, &raw mut device) }).map(|_| device)
    }

    /// Makes a pool of buffers for packets of so many bytes. `None`: there is not enough memory.
    pub(crate) fn pool(self, name: &CStr, buffers: u32, room: u16) -> Option<ptr::NonNull<Pool>> {
        // SAFETY: a C string, which DPDK copies.
        ptr::NonNull::new(unsafe { (self.0.pool)(name.as_ptr(), buffers, room) })
    }

    /// Starts a device with this many transmit queues, and a receive queue for each of these pools. The error
    /// has the step that failed.
    ///
    /// # Errors
    /// A step failed.
    pub(crate) fn open(
        self,
        port: u16,
        device: &Device,
        pools: &[ptr::NonNull<Pool>],
    ) -> Result<(), (String, io::Error)> {
        let mut step: *const c_char = c"".as_ptr();
        let device = Device { rx_queues: pools.len() as u16, ..*device };
        // SAFETY: as many pools of this library as receive queues, and places that live on.
        let code = unsafe { (self.0.open)(port, &raw const device, pools.as_ptr().cast(), &raw mut step) };
        checked(code).map(drop).map_err(|error| {
            // SAFETY: a constant C string of the library, or ours.
            let step = unsafe { CStr::from_ptr(step) }.to_string_lossy().into_owned();
            (step, error)
        })
    }

    /// Makes the calling thread one of EAL's; true if `leave` has to be called.
    ///
    /// # Errors
    /// EAL has no number left for a thread.
    pub(crate) fn enter(self) -> io::Result<bool> {
        // SAFETY: EAL runs.
        checked(unsafe { (self.0.enter)() }).map(|entered| entered == 1)
    }
}

fn checked(code: c_int) -> io::Result<c_int> {
    if code < 0 { Err(io::Error::from_raw_os_error(code.saturating_neg())) } else { Ok(code) }
}

/// Returns an error of the dynamic linker with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
