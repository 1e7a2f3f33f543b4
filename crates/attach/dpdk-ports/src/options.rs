//! EAL's options: those that the user gives, or defaults that work in a container, too.

use std::ffi::CString;
use std::fs;

use rustix::thread::sched_getaffinity;

use crate::error::Error;

/// The program's name in messages of EAL.
const NAME: &str = "p4shield --dpdk";
/// Where the kernel counts huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Returns the options: the given words, or the defaults for these devices.
///
/// The defaults keep the calling thread on the processors that it may use, share nothing with other DPDK
/// processes, and probe no device but those that are named. Without free huge pages, memory is of ordinary
/// pages, which a device of hardware may not be able to use.
pub(crate) fn words(given: Option<&str>, devices: &[String]) -> Vec<String> {
    if let Some(given) = given {
        return given.split_whitespace().map(str::to_owned).collect();
    }
    let mut words = vec!["--no-telemetry".to_owned()];
    words.extend(["--lcores".to_owned(), format!("0@({})", processors())]);
    if devices.iter().all(|device| device.starts_with("net_")) {
        words.push("--no-pci".to_owned());
    } else {
        // No device has this address, and only those are probed that are allowed or named.
        words.extend(["-a", "0000:00:00.0"].map(str::to_owned));
    }
    // Either way, nothing is shared with another process, or left in a folder.
    let memory =
        if has_huge_pages() { &["--in-memory"][..] } else { &["--no-shconf", "--no-huge", "-m", "512"] };
    words.extend(memory.iter().copied().map(str::to_owned));
    words
}

/// Returns given options with one blank between two.
pub(crate) fn joined(given: &str) -> String {
    given.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns EAL's arguments for these options.
///
/// # Errors
/// An option would end the process, or is no C string.
pub(crate) fn arguments(words: &[String]) -> Result<Vec<CString>, Error> {
    let refused = |option: &str, why| Error::Option { option: option.to_owned(), why };
    for word in words {
        let is_help = word.len() > 2 && word.starts_with("--h") && "--help".starts_with(word.as_str());
        if is_help || word == "-h" {
            return Err(refused(word, "it would only print help; `dpdk-testpmd --help` does so"));
        }
        if word == "--" {
            return Err(refused(word, "write EAL's options only"));
        }
    }
    let of = |word: &str| CString::new(word).map_err(|_| refused(word, "it has a zero byte"));
    std::iter::once(NAME).chain(words.iter().map(String::as_str)).map(of).collect()
}

/// Returns the processors that this thread may use, as EAL lists them.
fn processors() -> String {
    let Ok(set) = sched_getaffinity(None) else { return "0".to_owned() };
    let usable = (0..rustix::thread::CpuSet::MAX_CPU).filter(|n| set.is_set(*n));
    usable.map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

/// Returns whether there is a free huge page of any size.
fn has_huge_pages() -> bool {
    let sizes = fs::read_dir(HUGE_PAGES).into_iter().flatten().flatten();
    let free = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("free_hugepages")).ok();
    sizes.filter_map(free).any(|text| text.trim().parse::<u64>().is_ok_and(|pages| pages > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: Option<&str>, devices: &[&str]) -> Vec<String> {
        words(given, &devices.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn given_options_replace_the_defaults() {
        assert_eq!(of(Some(" --no-pci   -m 64 "), &["net_null0"]), ["--no-pci", "-m", "64"]);
        assert!(of(Some(""), &["net_null0"]).is_empty());
    }

    #[test]
    fn only_named_devices_are_probed() {
        assert!(of(None, &["net_null0,size=64"]).contains(&"--no-pci".to_owned()));
        let hardware = of(None, &["net_null0", "0000:01:00.0"]);
        assert!(!hardware.contains(&"--no-pci".to_owned()) && hardware.contains(&"0000:00:00.0".to_owned()));
    }

    #[test]
    fn options_that_end_the_process_are_refused() {
        for option in ["-h", "--help", "--hel", "--he", "--h", "--", "a\0b"] {
            let refused = arguments(&[option.to_owned()]);
            assert!(matches!(refused, Err(Error::Option { .. })), "{option}: {refused:?}");
        }
        let taken = arguments(&["--huge-dir".to_owned(), "-m".to_owned()]).unwrap();
        assert_eq!(taken.len(), 3);
    }
}
