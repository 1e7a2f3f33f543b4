//! The table of certificates that a host passes to an SEV-SNP guest (`auxblob` of configfs-tsm).

use crate::evidence::{CertificateKind, EvidenceCertificate};

/// Bytes of an entry: a GUID, an offset and a length.
const ENTRY: usize = 24;
/// Most entries of a table.
const MAX_ENTRIES: usize = 32;

/// GUIDs of certificates (AMD's GHCB standard, in the order of their digits).
const KINDS: [(u128, Entry); 3] = [
    (0x63da_758d_e664_4564_adc5_f4b9_3be8_accd, Entry::Vcek),
    (0xa807_4bc2_a25a_483e_aae6_39c0_45a0_b8a1, Entry::Vlek),
    (0x4ab7_b379_bbac_4fe4_a02f_05ae_f327_c782, Entry::Authority),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Vcek,
    Vlek,
    /// ASK or ASVK.
    Authority,
}

/// Returns the certificates that a verifier needs: the VLEK with its issuer, or the VCEK. A verifier has the
/// issuers of VCEKs. An empty table is that of a host that passes none on.
pub(crate) fn certificates(table: &[u8]) -> Result<Vec<EvidenceCertificate>, String> {
    let mut found = Vec::new();
    for n in 0..MAX_ENTRIES {
        let Some(entry) = table.get(n * ENTRY..(n + 1) * ENTRY) else { break };
        let (guid, place) = entry.split_at(16);
        if guid.iter().all(|b| *b == 0) {
            break;
        }
        let guid = guid.iter().fold(0, |number: u128, b| number << 8 | u128::from(*b));
        let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == guid) else { continue };
        let (offset, length) = place.split_at(4);
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |number: usize, b| number << 8 | usize::from(*b));
        let (offset, length) = (number(offset), number(length));
        let der = offset.checked_add(length).and_then(|end| table.get(offset..end));
        found.push((*kind, der.ok_or("an entry of the table of certificates is outside of it")?));
    }
    let of = |kind: Entry, name| {
        let der = found.iter().find(|(found, _)| *found == kind).map(|(_, der)| der.to_vec())?;
        Some(EvidenceCertificate { kind: name, der })
    };
    let vlek = of(Entry::Vlek, CertificateKind::Vlek);
    let issuer = vlek.as_ref().and_then(|_| of(Entry::Authority, CertificateKind::Asvk));
    let vcek = of(Entry::Vcek, CertificateKind::Vcek);
    Ok([vcek, vlek, issuer].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(u128, &[u8])]) -> Vec<u8> {
        let mut offset = ENTRY * (entries.len() + 1);
        let mut bytes = Vec::new();
        for (guid, der) in entries {
            bytes.extend(guid.to_be_bytes());
            bytes.extend(u32::try_from(offset).unwrap().to_le_bytes());
            bytes.extend(u32::try_from(der.len()).unwrap().to_le_bytes());
            offset += der.len();
        }
        bytes.extend([0; ENTRY]);
        entries.iter().for_each(|(_, der)| bytes.extend(*der));
        bytes
    }

    #[test]
    fn the_table_yields_the_certificates_that_are_needed() {
        let [(vcek, _), (vlek, _), (authority, _)] = KINDS;
        let of_chip = table(&[(1, b"other"), (authority, b"ask"), (vcek, b"vcek")]);
        let kinds = |bytes: &[u8]| {
            let found = certificates(bytes).unwrap();
            found.into_iter().map(|c| (c.kind, c.der)).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&of_chip), [(CertificateKind::Vcek, b"vcek".to_vec())]);
        let of_provider = table(&[(vlek, b"vlek"), (authority, b"asvk")]);
        let expected = [(CertificateKind::Vlek, b"vlek".to_vec()), (CertificateKind::Asvk, b"asvk".to_vec())];
        assert_eq!(kinds(&of_provider), expected);
        assert_eq!(kinds(b""), []);
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let mut bytes = table(&[(KINDS[0].0, b"vcek")]);
        for length in [u32::MAX, 5] {
            bytes[20..24].copy_from_slice(&length.to_le_bytes());
            assert!(certificates(&bytes).is_err());
        }
        for cut in 0..bytes.len() {
            let _ = certificates(&bytes[..cut]);
        }
    }
}
