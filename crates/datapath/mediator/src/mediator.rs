//! The mediator: its state, and what attaches and detaches P4 VMs.
//!
//! `impl Mediator` continues in the module of each operation: [`crate::submit`], [`crate::enqueue`],
//! [`crate::poll`], [`crate::release`], [`crate::sleep`].

use crate::config::{Config, ConfigError, TenantConfig, VmRef};
use crate::counters::Counters;
use crate::inline::InlineEngine;
use crate::lookup::Lookup;
use crate::p4vm::{P4VmChannel, P4VmFault};
use crate::packet::Packet;
use crate::ports::Ports;
use crate::rewrite_check::RewriteCheck;
use crate::tenant::TenantState;
use std::sync::Arc;

/// The switch side of P4 Shield; the crate's documentation lists what it promises.
///
/// One thread uses it. An attachment with several threads has one mediator for each, with channels of
/// its own.
pub struct Mediator<P> {
    pub(crate) tenants: Box<[TenantState<P>]>,
    pub(crate) lookup: Lookup,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ports: Ports,
    /// The attachment's own check of rewritten packets.
    pub(crate) rewrite_check: Option<RewriteCheck>,
    /// Tenants with unpublished requests.
    pub(crate) dirty: Vec<u16>,
    /// Tenants that hold packets or await answers.
    pub(crate) active: Vec<u16>,
    /// Offset of the active tenant that the next poll begins with.
    pub(crate) turn: usize,
    /// Tenant of the last packet that passed, until [`Self::notify_sent`] reports that it was sent.
    pub(crate) last_passed: Option<usize>,
}

impl<P: Packet> Mediator<P> {
    /// A mediator with all its memory allocated, and no tenant attached.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Self::build(config, |_, tenant| TenantState::new(tenant))
    }

    /// Creates the mediator that succeeds one for `before`, from which it must [inherit](Self::inherit)
    /// before it is used: queues that it will inherit are not allocated again.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn successor(config: &Config, before: &Config) -> Result<Self, ConfigError> {
        Self::build(config, |t, tenant| {
            let old = before.tenants.get(t).filter(|_| config.keeps_tenant(before, t as u16));
            match old {
                Some(old) if tenant.max_held <= old.max_held => TenantState::heir(tenant),
                _ => TenantState::new(tenant),
            }
        })
    }

    fn build(
        config: &Config,
        tenant: impl Fn(usize, &TenantConfig) -> TenantState<P>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let count = config.tenants.len();
        Ok(Self {
            tenants: config.tenants.iter().enumerate().map(|(t, config)| tenant(t, config)).collect(),
            lookup: Lookup::new(config)?,
            counters: Arc::new(Counters::new(config)),
            ports: Ports::new(),
            rewrite_check: None,
            dirty: Vec::with_capacity(count),
            active: Vec::with_capacity(count),
            turn: 0,
            last_passed: None,
        })
    }

    /// Returns the counters, which any thread may read.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Returns the number of held packets of all tenants.
    #[must_use]
    pub fn held(&self) -> usize {
        self.active.iter().map(|t| self.tenants[usize::from(*t)].held()).sum()
    }

    /// Returns why a tenant's channel was detached, if it was and has not been replaced.
    #[must_use]
    pub fn fault(&self, tenant: usize) -> Option<P4VmFault> {
        self.tenants.get(tenant).and_then(|t| t.fault)
    }

    /// Whether a tenant has a channel or an inline engine.
    #[must_use]
    pub fn is_attached(&self, tenant: usize) -> bool {
        self.tenants.get(tenant).is_some_and(TenantState::is_attached)
    }

    /// Attaches a tenant's P4 VM, replaces its channel, or detaches it (none). Clears a fault.
    /// Requests for waiting packets are pushed again into the new channel; without one, the tenant's
    /// policy decides these packets.
    ///
    /// # Errors
    /// If there is no such tenant.
    pub fn replace_channel(
        &mut self,
        now: u64,
        tenant: usize,
        channel: Option<P4VmChannel>,
    ) -> Result<(), ConfigError> {
        let state = self.tenants.get_mut(tenant).ok_or(ConfigError::NoTenant(tenant))?;
        state.replace_channel(now, channel, &self.ports);
        state.publish(now, &self.counters.tenants[tenant]);
        if state.is_busy() {
            self.activate(tenant);
        }
        Ok(())
    }

    /// Attaches an inline engine in place of a tenant's channel. Clears a fault. The engine also
    /// judges the packets that already wait. [`Self::replace_channel`] detaches it.
    ///
    /// # Errors
    /// If there is no such tenant.
    pub fn attach_inline(&mut self, tenant: usize, engine: Box<dyn InlineEngine>) -> Result<(), ConfigError> {
        self.tenants.get_mut(tenant).ok_or(ConfigError::NoTenant(tenant))?.attach_inline(engine);
        Ok(())
    }

    /// Defers the ingress of these VMs, and of no others, to the transmit side of their ports, where
    /// another mediator has [`crate::Stages::IngressOnly`]. Here their packets are judged by the
    /// sender's egress program only.
    pub fn defer_ingress(&mut self, vms: &[VmRef]) {
        self.lookup.defer_ingress(vms);
    }

    /// Sets the VMs that send from ports of their own only, and no others. At a port that VMs share a
    /// packet with such a VM's source address is another machine's: it is dropped, since the VM's log and
    /// its auditor would differ if the VM's program judged it.
    pub fn bind(&mut self, vms: &[VmRef]) {
        self.lookup.bind(vms);
    }

    /// Sets the attachment's own check of rewritten packets, or none; returns the previous one. An
    /// attachment that looks further into packets than the mediator before it submits them has to look
    /// again after an egress program has rewritten them.
    pub fn set_rewrite_check(&mut self, check: Option<RewriteCheck>) -> Option<RewriteCheck> {
        std::mem::replace(&mut self.rewrite_check, check)
    }

    /// Adds a tenant to the active ones.
    #[inline]
    pub(crate) fn activate(&mut self, t: usize) {
        let active = &mut self.tenants[t].active;
        if !*active {
            *active = true;
            // `Config::check` limits the tenants to what a u16 can index.
            self.active.push(t as u16);
        }
    }
}
