//! Checks of tenants whose programs come in signed bundles.

use super::check::Checker;
use super::{Placement, file};

impl Checker<'_> {
    /// Reports programs that a P4 VM with a pinned key would refuse, and bundles without such a key.
    pub(super) fn bundles(&mut self, t: &file::Tenant, placement: Placement) {
        for v in &t.vm {
            let objects = v.ingress.first().or(v.egress.first());
            match (&v.bundle, objects, &t.bundle_key) {
                (Some(bundle), Some(_), _) => self.problem(
                    bundle.span(),
                    format!(
                        "bundle: VM {:?} has ingress or egress, too; a bundle holds the programs of both \
                         directions: remove one of them",
                        v.name.as_ref()
                    ),
                ),
                (Some(bundle), None, None) => self.problem(
                    bundle.span(),
                    format!(
                        "bundle: tenant {:?} has no bundle_key; write bundle_key = FILE with the public key \
                         that signs its bundles",
                        t.name.as_ref()
                    ),
                ),
                (None, Some(objects), Some(_)) => self.problem(
                    objects.span(),
                    format!(
                        "VM {:?}: with a bundle_key, the P4 VM runs programs of signed bundles only; write \
                         bundle = FILE, made by `p4shield bundle build`, or remove bundle_key",
                        v.name.as_ref()
                    ),
                ),
                _ => {}
            }
        }
        let Some(key) = &t.bundle_key else { return };
        if placement == Placement::Inline {
            let message = "bundle_key: the host approves programs in a switch (placement = \"inline\"); \
                           write placement = \"p4vm\" or remove bundle_key";
            self.problem(key.span(), message.to_owned());
        }
        if let Some(skip) = t.no_program.as_ref().filter(|word| word.as_ref() == "skip") {
            let message = "no_program: only the P4 VM knows for which directions a bundle has no program, \
                           so that the switch cannot skip them; write \"pass\" or \"drop\"";
            self.problem(skip.span(), message.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use std::path::{Path, PathBuf};

    const TENANT: &str = "[[tenant]]\nname = \"alice\"\n";
    const VM: &str = "[[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.0.2\"]\n";
    const KEY: &str = "bundle_key = \"alice.pub\"\n";
    const BUNDLE: &str = "bundle = \"web.bundle\"\n";

    fn parse(top: &str, of_tenant: &str, of_vm: &str) -> Result<Config, String> {
        let text = format!("{top}{TENANT}{of_tenant}{VM}{of_vm}");
        Config::parse(Path::new("/etc/p4shield/p4shield.toml"), &text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_bundle_stands_in_the_place_of_the_programs() {
        let config = parse("", KEY, BUNDLE).unwrap();
        let tenant = &config.tenants[0];
        assert_eq!(tenant.bundle_key.as_deref(), Some(Path::new("/etc/p4shield/alice.pub")));
        let none: [Vec<PathBuf>; 2] = [vec!["/etc/p4shield/web.bundle".into()], vec![]];
        assert_eq!(tenant.vms[0].programs, none);
        // A VM without a program.
        assert_eq!(
            parse("", KEY, "").unwrap().tenants[0].vms[0].programs,
            [vec![], vec![]] as [Vec<PathBuf>; 2]
        );
    }

    #[test]
    fn bundles_and_objects_do_not_mix() {
        let ingress = "ingress = [\"guard.o\"]\n";
        let egress = "egress = [\"guard.o\"]\n";
        for (top, tenant, vm, problem) in [
            ("", "", BUNDLE, "6:10: bundle: tenant \"alice\" has no bundle_key"),
            ("", KEY, ingress, "7:12: VM \"web\": with a bundle_key"),
            ("", KEY, egress, "7:11: VM \"web\": with a bundle_key"),
            ("", KEY, &format!("{ingress}{BUNDLE}"), "8:10: bundle: VM \"web\" has ingress or egress, too"),
            ("", &format!("{KEY}no_program = \"skip\"\n"), BUNDLE, "4:14: no_program: "),
            ("attachment = \"dpdk\"\nplacement = \"inline\"\n", KEY, BUNDLE, "5:14: bundle_key: "),
        ] {
            let error = parse(top, tenant, vm).unwrap_err();
            assert!(error.contains(problem) && error.lines().count() == 1, "{error}");
        }
    }
}
