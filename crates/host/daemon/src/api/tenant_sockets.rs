//! Which tenants have an open socket of their own.

use crate::config::{Config, TenantSocket};
use crate::status::problem::{Problem, ProblemKind};
use p4shield_text::chain;
use std::collections::BTreeMap;

/// What serves a socket until it is dropped.
type Server = Box<dyn Send>;

/// The sockets of all tenants that have one.
#[derive(Default)]
pub(crate) struct TenantSockets {
    /// By tenant: the socket, and its server or why there is none.
    open: BTreeMap<String, (TenantSocket, Result<Server, String>)>,
}

impl TenantSockets {
    /// Opens and closes sockets as the configuration says. One that cannot be opened is a problem, and the
    /// next call tries again.
    pub(crate) fn update<S: Send + 'static>(
        &mut self,
        config: &Config,
        serve: impl Fn(&str, &TenantSocket) -> std::io::Result<S>,
    ) {
        let due: BTreeMap<_, _> = config
            .numbered_tenants()
            .filter_map(|(_, tenant)| Some((tenant.name.clone(), tenant.socket.clone()?)))
            .collect();
        self.open.retain(|tenant, (socket, server)| due.get(tenant) == Some(socket) && server.is_ok());
        for (tenant, socket) in due {
            if self.open.contains_key(&tenant) {
                continue;
            }
            let server = serve(&tenant, &socket).map(|server| Box::new(server) as Server);
            self.open.insert(tenant, (socket, server.map_err(|e| chain(&e))));
        }
    }

    /// Returns the sockets that could not be opened.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let failed = |(tenant, (socket, server)): (&String, &(TenantSocket, Result<Server, String>))| {
            let why = server.as_ref().err()?;
            let text = format!(
                "its socket {} cannot be opened: {why}; free the path or set another socket, then run \
                 `p4shield reload`",
                socket.path.display()
            );
            Some(Problem::of_tenant(ProblemKind::TenantSocket, tenant, text))
        };
        self.open.iter().filter_map(failed).collect()
    }
}
