//! Files that belong to one VM or tenant: no other one may have them.

use super::check::Checker;
use super::{TenantSocket, file};
use std::collections::HashMap;
use std::path::PathBuf;
use toml::Spanned;

/// Returns the keys of a tenant's VMs.
fn vm_keys(tenant: &file::Tenant) -> impl Iterator<Item = &Spanned<PathBuf>> {
    tenant.vm.iter().filter_map(|v| v.key_file.as_ref())
}

impl Checker<'_> {
    /// Reports a page that two VMs have, or that is two pages of one; and a key that two tenants
    /// or VMs have.
    pub(super) fn unshared_paths(&mut self, file: &file::File) {
        let vms = file.tenant.iter().flat_map(|t| &t.vm);
        let pages = vms.flat_map(|v| [&v.info_page, &v.log_page, &v.handshake_page]).flatten();
        self.unshared("page", "what one VM reads or writes there, the other one does, too", pages);
        let own = |t| -> Vec<_> { vm_keys(t).collect() };
        let keys = file.tenant.iter().flat_map(|t| t.key_file.as_ref().into_iter().chain(own(t)));
        self.unshared("key", "who has it can forge the information of both", keys);
        let sockets = file.tenant.iter().filter_map(|t| t.socket.as_ref());
        self.unshared("socket", "one tenant would manage the other one's programs there", sockets);
        let daemon = file.daemon.iter();
        let own: Vec<_> = daemon.flat_map(|d| [&d.socket, &d.attach_socket]).flatten().collect();
        for socket in file.tenant.iter().filter_map(|t| t.socket.as_ref()) {
            if own.iter().any(|path| self.path(path) == self.path(socket.as_ref())) {
                let message = "socket: this is a socket of the daemon; write another path".to_owned();
                self.problem(socket.span(), message);
            }
        }
    }

    pub(super) fn tenant_socket(&mut self, t: &file::Tenant) -> Option<TenantSocket> {
        let (uids, gids) = (t.socket_uids.clone(), t.socket_gids.clone());
        let path = t.socket.as_ref().map(|path| self.place(path));
        if path.is_none() && !(uids.is_empty() && gids.is_empty()) {
            let message = "socket_uids and socket_gids need a socket; write socket = \"PATH\"".to_owned();
            self.problem(t.name.span(), message);
        }
        path.map(|path| TenantSocket { path, uids, gids })
    }

    fn unshared<'f>(&mut self, what: &str, because: &str, paths: impl Iterator<Item = &'f Spanned<PathBuf>>) {
        let mut seen: HashMap<PathBuf, usize> = HashMap::new();
        for path in paths {
            let line = self.line(path.span());
            if let Some(first) = seen.get(&self.path(path.as_ref())) {
                let message = format!(
                    "{what}: {} is in line {first} already; write another file, since {because}",
                    path.as_ref().display()
                );
                self.problem(path.span(), message);
            } else {
                seen.insert(self.path(path.as_ref()), line);
            }
        }
    }
}
