//! The kernel's list of this process's mappings (`/proc/self/smaps`, `/proc/self/maps`).

use std::ops::Range;

use super::access::NotShareable;

/// The first line of a mapping's entry.
#[derive(Debug, PartialEq, Eq)]
struct MapsEntry<'t> {
    addresses: Range<usize>,
    rights: &'t str,
    /// Device (major and minor number) and inode of the mapped file.
    file: ((u32, u32), u64),
    name: &'t str,
}

fn entry(line: &str) -> Option<MapsEntry<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text| usize::from_str_radix(text, 16).ok();
    let addresses = hex(start)?..hex(end)?;
    let (rights, _offset, device) = (words.next()?, words.next()?, words.next()?);
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let file = ((number(major)?, number(minor)?), words.next()?.parse().ok()?);
    Some(MapsEntry { addresses, rights, file, name: words.next().unwrap_or_default() })
}

impl MapsEntry<'_> {
    /// Returns whether the mapping is writable, private and not of a file. Huge pages are listed with a
    /// file that cannot be opened.
    fn is_private(&self) -> bool {
        let anonymous = self.file.1 == 0 || self.name == "/anon_hugepage";
        self.rights == "rw-p" && anonymous
    }
}

/// Returns the page size of a buffer that can be replaced by other memory: it is fully mapped, private
/// and writable, in whole pages of one size.
pub(super) fn page_size(smaps: &str, addresses: &Range<usize>) -> Result<usize, NotShareable> {
    let mut page = None;
    let mut reached = addresses.start;
    let mut within = false;
    for line in smaps.lines() {
        if let Some(entry) = entry(line) {
            within = entry.addresses.start < addresses.end && addresses.start < entry.addresses.end;
            if !within {
                continue;
            }
            if entry.addresses.start > reached || !entry.is_private() {
                return Err(NotShareable::NotPrivate);
            }
            reached = entry.addresses.end;
        } else if let Some(size) = line.strip_prefix("KernelPageSize:").filter(|_| within) {
            let size = size.trim().strip_suffix(" kB").and_then(|n| n.parse::<usize>().ok()).map(|n| n << 10);
            if page.is_some() && page != size {
                return Err(NotShareable::Pages);
            }
            page = size;
        } else if line.strip_prefix("VmFlags:").filter(|_| within).is_some_and(is_special) {
            return Err(NotShareable::NotPrivate);
        }
    }
    let page =
        page.filter(|n| n.is_power_of_two() && reached >= addresses.end).ok_or(NotShareable::NotPrivate)?;
    let whole = addresses.start.is_multiple_of(page) && addresses.end.is_multiple_of(page);
    if whole { Ok(page) } else { Err(NotShareable::Pages) }
}

/// Returns whether the flags are those of a stack, which grows, or of memory whose page faults are
/// handled by userfaultfd.
fn is_special(flags: &str) -> bool {
    flags.split_ascii_whitespace().any(|f| matches!(f, "gd" | "um" | "uw" | "ui"))
}

/// Returns the parts of these addresses that map this file as shared memory.
pub(super) fn parts_of(maps: &str, addresses: &Range<usize>, file: ((u32, u32), u64)) -> Vec<Range<usize>> {
    let ours = maps.lines().filter_map(entry).filter(|a| a.file == file && a.rights.ends_with('s'));
    let part = |a: MapsEntry<'_>| a.addresses.start.max(addresses.start)..a.addresses.end.min(addresses.end);
    ours.map(part).filter(|p| !p.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0                          [heap]
KernelPageSize:        4 kB
VmFlags: rd wr mr mw me ac
3000-5000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
VmFlags: rd wr mr mw me ac
6000-8000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
VmFlags: rd wr mr mw me gd ac
200000-600000 rw-p 00000000 00:0f 7 /anon_hugepage (deleted)
KernelPageSize:     2048 kB
VmFlags: rd wr mr mw me de ht
600000-601000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
VmFlags: rd wr mr mw me ac
700000-702000 rw-s 00000000 00:01 8 /dev/zero (deleted)
KernelPageSize:        4 kB
702000-704000 rw-p 00000000 fe:00 9 /tmp/file
KernelPageSize:        4 kB
704000-706000 r--p 00000000 00:00 0
KernelPageSize:        4 kB
";

    fn size(addresses: Range<usize>) -> Result<usize, String> {
        page_size(SMAPS, &addresses).map_err(|e| e.to_string())
    }

    #[test]
    fn private_whole_pages_of_one_size_are_replaceable() {
        assert_eq!(size(0x1000..0x3000), Ok(4096));
        assert_eq!(size(0x2000..0x5000), Ok(4096), "two adjacent mappings");
        assert_eq!(size(0x20_0000..0x40_0000), Ok(2 << 20), "part of a mapping of huge pages");
        let private = NotShareable::NotPrivate.to_string();
        for other in [0x4000..0x7000, 0x6000..0x8000, 0x70_0000..0x70_1000, 0x70_2000..0x70_3000] {
            assert_eq!(size(other.clone()), Err(private.clone()), "{other:x?}");
        }
        assert_eq!(size(0x70_4000..0x70_5000), Err(private.clone()), "not writable");
        assert_eq!(size(0x90_0000..0x91_0000), Err(private), "not mapped");
        let pages = NotShareable::Pages.to_string();
        for other in [0x1000..0x1800, 0x20_1000..0x40_1000, 0x40_0000..0x60_1000] {
            assert_eq!(size(other.clone()), Err(pages.clone()), "{other:x?}");
        }
    }

    #[test]
    fn mappings_of_the_application_are_skipped() {
        let maps = "1000-3000 rw-s 00000000 00:01 42 /memfd:p4shield-packets (deleted)\n\
                    3000-4000 rw-p 00000000 00:00 0\n\
                    4000-8000 rw-s 00003000 00:01 42 /memfd:p4shield-packets (deleted)\n\
                    8000-9000 rw-s 00000000 00:02 42 /memfd:p4shield-packets (deleted)\n";
        let parts = parts_of(maps, &(0x2000..0x9000), ((0, 1), 42));
        assert_eq!(parts, [0x2000..0x3000, 0x4000..0x8000]);
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for text in ["", "x", "Rss: 4 kB", "1000-zz rw-p 0 00:00 0", "1-2 rw-p 0 0000 0", "1-2", "-"] {
            assert_eq!(entry(text), None, "{text:?}");
        }
    }
}
