//! Which machines QEMU can start, and with which options. The golden command lines are the vmm crate's.

use p4shield_qemu::{
    Accelerator, CPU_MODELS, Guest, MAX_PROCESSORS, OptionsError, QemuVersion, QuoteService, Request,
    SnpGuest, TdxGuest, Tee, options,
};
use std::path::Path;

const FIRMWARE: &str = "/usr/share/ovmf/OVMF.fd";

fn request(guest: Guest) -> Request<'static> {
    Request {
        version: guest.tee().first_qemu(),
        guest,
        accelerator: Accelerator::Kvm,
        memory: 512 << 20,
        processors: 2,
        firmware: Some(Path::new(FIRMWARE)),
    }
}

/// Returns why a request is refused that differs from a good one.
fn refused(tee: Tee, change: impl FnOnce(&mut Request<'_>)) -> OptionsError {
    let mut request = request(Guest::new(tee));
    assert!(options(&request).is_ok());
    change(&mut request);
    options(&request).unwrap_err()
}

#[test]
fn no_tee_is_silently_left_out() {
    for tee in [Tee::SevSnp, Tee::Tdx] {
        let (first, older) = (tee.first_qemu(), QemuVersion::new(9, 0, 4));
        let old = refused(tee, |r| r.version = older);
        assert_eq!(old, OptionsError::OldQemu { tee, version: older, needed: first });
        assert_eq!(refused(tee, |r| r.accelerator = Accelerator::Tcg), OptionsError::NeedsKvm(tee));
        assert_eq!(refused(tee, |r| r.firmware = None), OptionsError::NoFirmware(tee));
        let arguments = options(&request(Guest::new(tee))).unwrap().arguments().join(" ");
        assert!(arguments.contains("confidential-guest-support=tee0"), "{arguments}");
        assert!(arguments.contains("kernel-irqchip=split") && arguments.contains("smm=off"), "{arguments}");
    }
}

#[test]
fn sizes_out_of_their_limits_are_refused() {
    for tee in Tee::ALL {
        assert_eq!(refused(tee, |r| r.memory = 0), OptionsError::Memory(0));
        assert_eq!(refused(tee, |r| r.memory = (1 << 20) + 1), OptionsError::Memory((1 << 20) + 1));
        for processors in [0, MAX_PROCESSORS + 1] {
            let refused = refused(tee, |r| r.processors = processors);
            assert_eq!(refused, OptionsError::Processors { processors, most: MAX_PROCESSORS });
        }
    }
    let path = Path::new("/a\nb");
    assert_eq!(refused(Tee::Tdx, |r| r.firmware = Some(path)), OptionsError::Path(path.into()));
}

#[test]
fn debugging_and_migration_are_forbidden_by_policy() {
    // Bit 17 must be 1, bit 16 allows SMT; bit 18 (migration agent) and bit 19 (debugging) are 0: table 9 of
    // the SEV-SNP firmware ABI.
    let object = &options(&request(Guest::new(Tee::SevSnp))).unwrap().objects[1];
    assert!(object.contains("policy=0x30000"), "{object}");
    let tdx = &options(&request(Guest::new(Tee::Tdx))).unwrap().objects[1];
    assert!(!tdx.contains("debug") && !tdx.contains("attributes"), "{tdx}");
}

#[test]
fn the_kernel_is_part_of_the_measurement() {
    let object = &options(&request(Guest::new(Tee::SevSnp))).unwrap().objects[1];
    assert!(object.contains("kernel-hashes=on"), "{object}");
}

#[test]
fn processors_without_a_known_signature_are_refused() {
    let with = |cpu: &str, version| {
        let guest = Guest::SevSnp(SnpGuest { cpu: cpu.to_owned(), ..SnpGuest::default() });
        options(&Request { version, ..request(guest) }).map(|o| o.cpu)
    };
    let newest = QemuVersion::new(10, 1, 0);
    for (cpu, first) in CPU_MODELS {
        assert_eq!(with(cpu, first), Ok(cpu.to_owned()));
    }
    for cpu in ["host", "max", "EPYC-v99", "EPYC,+avx", ""] {
        assert_eq!(with(cpu, newest), Err(OptionsError::UnknownCpu(cpu.to_owned())));
    }
    assert!(matches!(with("EPYC-Turin", QemuVersion::new(10, 0, 0)), Err(OptionsError::NewCpu { .. })));
    let guest = Guest::SevSnp(SnpGuest { c_bit: 31, ..SnpGuest::default() });
    assert_eq!(options(&request(guest)), Err(OptionsError::EncryptionBit(31)));
}

#[test]
fn bindings_are_base64_in_the_tees_object() {
    let snp = SnpGuest { host_data: Some([0xa5; 32]), ..SnpGuest::default() };
    let object = options(&request(Guest::SevSnp(snp))).unwrap().objects.remove(1);
    assert!(object.ends_with(",host-data=paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaU="), "{object}");
    let tdx =
        TdxGuest { quotes: Some(QuoteService::Unix("/run/\"qgs\".socket".into())), config_id: Some([0; 48]) };
    let object = options(&request(Guest::Tdx(tdx))).unwrap().objects.remove(1);
    let value: serde_json::Value = serde_json::from_str(&object).unwrap();
    assert_eq!(value["mrconfigid"], "A".repeat(64));
    assert_eq!(value["quote-generation-socket"]["path"], "/run/\"qgs\".socket", "quoted");
}

#[test]
fn this_hosts_c_bit_is_a_possible_one() {
    let guest = Guest::SevSnp(SnpGuest::for_this_host());
    assert!(options(&request(guest)).is_ok());
}
