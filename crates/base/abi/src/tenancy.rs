//! A tenant's VM by index, and the policies that configuration, attachments and mediator share.

/// A VM of a tenant, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmRef {
    /// Index of the tenant in the configuration.
    pub tenant: u16,
    /// Index of the VM within its tenant.
    pub vm: u16,
}

/// Policy for a tenant's packets that its P4 VM does not judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailPolicy {
    /// They are dropped: no packet bypasses the program.
    #[default]
    Drop,
    /// They are let through: the network works without the program.
    Pass,
}

/// Policy for unowned packets: ARP and IPv6 neighbour discovery, and on a port that VMs share packets
/// that neither come from a VM nor go to one, such as those that are not IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnownedPolicy {
    /// They pass without a verdict.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
}
