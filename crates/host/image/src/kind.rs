//! The kinds of images.

/// The machines that an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// P4 VMs.
    P4Vm,
    /// P4 switches.
    Switch,
    /// Tenants' switches.
    TenantSwitch,
}

impl ImageKind {
    /// Returns the option of `p4shield image build` for it, behind a space.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Self::P4Vm => "",
            Self::Switch => " --switch",
            Self::TenantSwitch => " --tenant-switch",
        }
    }
}

impl std::fmt::Display for ImageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::P4Vm => "P4 VMs",
            Self::Switch => "P4 switches",
            Self::TenantSwitch => "tenants' switches",
        })
    }
}
