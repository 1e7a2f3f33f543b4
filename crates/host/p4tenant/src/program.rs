//! The program of a tenant's switch.

use p4shield_p4::diagnostics::Diagnostics;
use p4shield_p4::{NoIncludes, Options, compile};

/// The name of the program's file.
pub(crate) const NAME: &str = "tenant_switch.p4";
/// The port by which the host has the switch send packets. The program has it as `HOST`.
pub(crate) const HOST_PORT: u16 = 510;

/// Compiles the program.
pub(crate) fn object() -> Result<Vec<u8>, Diagnostics> {
    let compiled = compile(NAME, include_str!("tenant_switch.p4"), &NoIncludes, &Options::default())?;
    Ok(compiled.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_compiles() {
        assert!(!object().unwrap().is_empty());
    }
}
