//! The host's huge pages, from which switches with DPDK take theirs.

use std::fs;
use std::path::Path;

/// The kernel's pools by the size of a page (`Documentation/admin-guide/mm/hugetlbpage.rst`).
const POOLS: &str = "/sys/kernel/mm/hugepages";

/// Returns the problem if the host has fewer bytes of free huge pages than a switch needs, with the remedy.
pub(crate) fn check(needed: u64) -> Result<(), String> {
    let free = free(Path::new(POOLS));
    if free >= needed {
        return Ok(());
    }
    let missing = (needed - free).div_ceil(2 << 20);
    Err(format!(
        "it needs {} MiB of huge pages, and {} MiB are free on this host: raise vm.nr_hugepages by \
         {missing}, or write a smaller huge_pages",
        needed >> 20,
        free >> 20
    ))
}

/// Returns the bytes of the free pages of all pools in a folder.
fn free(pools: &Path) -> u64 {
    let of = |pool: fs::DirEntry| {
        let kibibytes = pool.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse();
        let pages = fs::read_to_string(pool.path().join("free_hugepages")).ok()?;
        let pages: u64 = pages.trim().parse().ok()?;
        Some(pages.saturating_mul(kibibytes.ok()?).saturating_mul(1 << 10))
    };
    let pools = fs::read_dir(pools).into_iter().flatten().flatten();
    pools.filter_map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_of_all_sizes_are_summed_up() {
        let folder = std::env::temp_dir().join(format!("p4shield-pools-{}", std::process::id()));
        for (pool, free) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "1\n"), ("other", "9\n")] {
            fs::create_dir_all(folder.join(pool)).unwrap();
            fs::write(folder.join(pool).join("free_hugepages"), free).unwrap();
        }
        assert_eq!(free(&folder), (6 << 20) + (1 << 30));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(free(&folder), 0);
    }

    #[test]
    fn a_host_without_enough_pages_is_a_problem_with_a_remedy() {
        let why = check(1 << 50).unwrap_err();
        assert!(why.contains("raise vm.nr_hugepages by") && why.contains("MiB are free"), "{why}");
        assert_eq!(check(0), Ok(()));
    }
}
