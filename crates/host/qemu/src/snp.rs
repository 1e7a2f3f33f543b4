//! Machines of SEV-SNP: QEMU's object `sev-snp-guest`.

use crate::error::OptionsError;
use crate::version::QemuVersion;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The settings of a machine of SEV-SNP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnpGuest {
    /// QEMU's model of the processor: its signature is part of the measurement, so `host` is none. One of
    /// [`CPU_MODELS`].
    pub cpu: String,
    /// Whether QEMU hands the digests of kernel, initial file system and command line to the firmware, in a
    /// page that is measured. Without them, the host chooses what the machine runs.
    pub kernel_hashes: bool,
    /// 32 bytes that each report of the machine contains (`HOST_DATA`).
    pub host_data: Option<[u8; 32]>,
    /// Position of the C-bit in an entry of a page table: bits 0 to 5 of EBX of CPUID 8000001F on the host.
    pub c_bit: u8,
    /// Bits of physical addresses that encryption takes: bits 6 to 11 of EBX of CPUID 8000001F on the host.
    pub reduced_phys_bits: u8,
}

impl Default for SnpGuest {
    /// Returns the settings for EPYC processors from Naples to Turin, whose C-bit is at 51.
    fn default() -> Self {
        Self {
            cpu: "EPYC-v4".to_owned(),
            kernel_hashes: true,
            host_data: None,
            c_bit: 51,
            reduced_phys_bits: 1,
        }
    }
}

/// QEMU's models whose signature is known to the `sev` crate, each with the first release of QEMU that has
/// it. Releases before 9.1, which have no SEV-SNP, count as 9.1.
pub const CPU_MODELS: [(&str, QemuVersion); 16] = {
    const FIRST: QemuVersion = QemuVersion::new(9, 1, 0);
    const TURIN: QemuVersion = QemuVersion::new(10, 1, 0);
    [
        ("EPYC", FIRST),
        ("EPYC-v1", FIRST),
        ("EPYC-v2", FIRST),
        ("EPYC-v3", FIRST),
        ("EPYC-v4", FIRST),
        ("EPYC-Rome", FIRST),
        ("EPYC-Rome-v1", FIRST),
        ("EPYC-Rome-v2", FIRST),
        ("EPYC-Rome-v3", FIRST),
        ("EPYC-Milan", FIRST),
        ("EPYC-Milan-v1", FIRST),
        ("EPYC-Milan-v2", FIRST),
        ("EPYC-Genoa", FIRST),
        ("EPYC-Genoa-v1", FIRST),
        ("EPYC-Turin", TURIN),
        ("EPYC-Turin-v1", TURIN),
    ]
};

impl SnpGuest {
    /// Returns the default settings with the C-bit of this host's processor.
    #[must_use]
    pub fn for_this_host() -> Self {
        let default = Self::default();
        let Some(info) = raw_cpuid::CpuId::new().get_memory_encryption_info() else { return default };
        if !info.has_sev() {
            return default;
        }
        let (c_bit, reduced) = (info.c_bit_position(), info.physical_address_reduction());
        Self { c_bit, reduced_phys_bits: reduced, ..default }
    }

    /// Checks the processor's model and the C-bit.
    pub(crate) fn check(&self, version: QemuVersion) -> Result<(), OptionsError> {
        let known = CPU_MODELS.iter().find(|(name, _)| *name == self.cpu);
        let (_, needed) = known.ok_or_else(|| OptionsError::UnknownCpu(self.cpu.clone()))?;
        if version < *needed {
            return Err(OptionsError::NewCpu { cpu: self.cpu.clone(), version, needed: *needed });
        }
        if !(32..64).contains(&self.c_bit) {
            return Err(OptionsError::EncryptionBit(self.c_bit));
        }
        Ok(())
    }

    /// Returns the value of `-object`. The policy is QEMU's default, stated: debugging and migration are
    /// forbidden, simultaneous multithreading is allowed.
    pub(crate) fn object(&self, id: &str) -> String {
        let hashes = if self.kernel_hashes { "on" } else { "off" };
        let data = self.host_data.map(|data| format!(",host-data={}", STANDARD.encode(data)));
        format!(
            "sev-snp-guest,id={id},policy=0x30000,cbitpos={},reduced-phys-bits={},kernel-hashes={hashes}{}",
            self.c_bit,
            self.reduced_phys_bits,
            data.unwrap_or_default()
        )
    }
}
