//! Users of the host, by name.

use std::path::Path;

use crate::Root;

/// A user with its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Looks up `USER` or `USER:GROUP`, names or numbers.
pub(crate) fn find(root: &Root, text: &str) -> Option<Account> {
    let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
    let of_user = line(root, "/etc/passwd", user);
    let uid = user.parse().ok().or_else(|| of_user.as_ref()?.get(2)?.parse().ok())?;
    let gid = match group.filter(|g| !g.is_empty()) {
        Some(group) => {
            group.parse().ok().or_else(|| line(root, "/etc/group", group)?.get(2)?.parse().ok())?
        }
        None => of_user.and_then(|fields| fields.get(3)?.parse().ok()).unwrap_or(uid),
    };
    Some(Account { uid, gid })
}

/// Returns the fields of the line that starts with a name.
fn line(root: &Root, file: &str, name: &str) -> Option<Vec<String>> {
    let text = root.read(Path::new(file)).ok()?;
    let mut lines = text.lines().map(|l| l.split(':').map(str::to_owned).collect::<Vec<_>>());
    lines.find(|fields| fields.first().is_some_and(|f| f == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        std::fs::write(
            folder.path().join("etc/passwd"),
            "root:x:0:0::/:/bin/sh\nopenvswitch:x:112:118::/:/\n",
        )
        .unwrap();
        std::fs::write(folder.path().join("etc/group"), "hugetlbfs:x:200:\n").unwrap();
        let root = Root::new(folder.path());
        let account = |uid, gid| Some(Account { uid, gid });
        assert_eq!(find(&root, "openvswitch"), account(112, 118));
        assert_eq!(find(&root, "openvswitch:hugetlbfs"), account(112, 200));
        assert_eq!(find(&root, "112:7"), account(112, 7));
        assert_eq!(find(&root, "nobody"), None);
        assert_eq!(find(&root, "openvswitch:none"), None);
    }
}
