//! The primitives of Noise for `snow`, from the crates that `p4shield-seal` uses.
//!
//! `snow`'s own ones are older versions of the same crates; they neither wipe keys nor refuse points of small
//! order. Ephemeral keys come from a seed, so that a state can be built again (`crate::noise`).

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use sha2::{Digest, Sha256};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::secret::{KEY_SIZE, Secret};

const TAG_SIZE: usize = 16;

/// The group in which keys are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Curve {
    /// Curve25519.
    X25519,
    /// A small group, for tests that make millions of exchanges. Its logarithms are easy to compute, which
    /// no adversary of a test does.
    #[cfg(test)]
    Toy,
}

impl Curve {
    /// Returns the public half of a key.
    pub(crate) fn public(self, secret: &[u8; KEY_SIZE]) -> [u8; KEY_SIZE] {
        match self {
            Self::X25519 => PublicKey::from(&StaticSecret::from(*secret)).to_bytes(),
            #[cfg(test)]
            Self::Toy => toy::public(secret),
        }
    }

    /// Returns the shared secret; none if the peer's key is of small order, so that the result is known.
    fn shared(self, secret: &[u8; KEY_SIZE], public: [u8; KEY_SIZE]) -> Option<Zeroizing<[u8; KEY_SIZE]>> {
        match self {
            Self::X25519 => {
                let shared = StaticSecret::from(*secret).diffie_hellman(&PublicKey::from(public));
                shared.was_contributory().then(|| Zeroizing::new(shared.to_bytes()))
            }
            #[cfg(test)]
            Self::Toy => toy::shared(secret, public).map(Zeroizing::new),
        }
    }
}

/// Resolves the primitives of `Noise_XX_25519_AESGCM_SHA256` with a given ephemeral key.
pub(crate) struct Primitives {
    pub(crate) curve: Curve,
    pub(crate) ephemeral: Secret,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Seed(Some(self.ephemeral.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(KeyPair::new(self.curve)) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::<Sha>::default() as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::<AesGcm>::default() as Box<dyn Cipher>)
    }
}

/// The seed of the one ephemeral key of a handshake.
struct Seed(Option<Secret>);

impl Random for Seed {
    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Error> {
        let seed = self.0.take().ok_or(Error::Rng)?;
        if to.len() != KEY_SIZE {
            return Err(Error::Rng);
        }
        to.copy_from_slice(seed.expose());
        Ok(())
    }
}

struct KeyPair {
    curve: Curve,
    secret: Zeroizing<[u8; KEY_SIZE]>,
    public: [u8; KEY_SIZE],
}

impl KeyPair {
    fn new(curve: Curve) -> Self {
        Self { curve, secret: Zeroizing::default(), public: [0; KEY_SIZE] }
    }
}

impl Dh for KeyPair {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_SIZE
    }

    fn priv_len(&self) -> usize {
        KEY_SIZE
    }

    fn set(&mut self, secret: &[u8]) {
        self.secret.copy_from_slice(secret);
        self.public = self.curve.public(&self.secret);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        rng.try_fill_bytes(&mut self.secret[..])?;
        self.public = self.curve.public(&self.secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.secret[..]
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk().ok_or(Error::Dh)?;
        let shared = self.curve.shared(&self.secret, *public).ok_or(Error::Dh)?;
        out.get_mut(..KEY_SIZE).ok_or(Error::Dh)?.copy_from_slice(&shared[..]);
        Ok(())
    }
}

#[derive(Default)]
struct Sha(Sha256);

impl Hash for Sha {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Sha256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.finalize_reset());
    }
}

#[derive(Default)]
struct AesGcm(Option<Aes256Gcm>);

/// Returns Noise's nonce for AES-GCM: 32 zero bits, then the counter in network byte order.
fn nonce(counter: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    nonce.into()
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = Some(Aes256Gcm::new(key.into()));
    }

    fn encrypt(&self, counter: u64, data: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let cipher = self.0.as_ref().expect("snow sets a key first");
        let (text, rest) = out.split_at_mut(plain.len());
        text.copy_from_slice(plain);
        let tag = cipher
            .encrypt_inout_detached(&nonce(counter), data, text.into())
            .expect("a message is far below GCM's 64 GiB");
        rest[..TAG_SIZE].copy_from_slice(&tag);
        plain.len() + TAG_SIZE
    }

    fn decrypt(&self, counter: u64, data: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let cipher = self.0.as_ref().ok_or(Error::Decrypt)?;
        let (sealed, tag) = sealed.split_last_chunk::<TAG_SIZE>().ok_or(Error::Decrypt)?;
        let text = out.get_mut(..sealed.len()).ok_or(Error::Decrypt)?;
        text.copy_from_slice(sealed);
        cipher
            .decrypt_inout_detached(&nonce(counter), data, text.into(), &Tag::from(*tag))
            .map_err(|_| Error::Decrypt)?;
        Ok(sealed.len())
    }
}

/// Exponentiation modulo 2^61 - 1.
#[cfg(test)]
mod toy {
    use super::KEY_SIZE;

    const PRIME: u64 = (1 << 61) - 1;

    fn times(a: u64, b: u64) -> u64 {
        (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
    }

    fn power(mut base: u64, secret: &[u8; KEY_SIZE]) -> u64 {
        let mut exponent = u64::from_le_bytes(*secret.first_chunk().expect("32 bytes hold 8"));
        let mut result = 1;
        while exponent != 0 {
            if exponent & 1 == 1 {
                result = times(result, base);
            }
            base = times(base, base);
            exponent >>= 1;
        }
        result
    }

    fn encode(element: u64) -> [u8; KEY_SIZE] {
        let mut bytes = [0; KEY_SIZE];
        bytes[..8].copy_from_slice(&element.to_le_bytes());
        bytes
    }

    pub(super) fn public(secret: &[u8; KEY_SIZE]) -> [u8; KEY_SIZE] {
        encode(power(37, secret))
    }

    /// As with the real group, every string of bytes is some element, and few are of small order. All bytes
    /// of a key count, so that a changed byte changes the secret.
    pub(super) fn shared(secret: &[u8; KEY_SIZE], public: [u8; KEY_SIZE]) -> Option<[u8; KEY_SIZE]> {
        let (element, rest) = public.split_first_chunk::<8>().expect("32 bytes hold 8");
        let shared = power(u64::from_le_bytes(*element) % PRIME, secret);
        let mut out = encode(shared);
        out[8..].copy_from_slice(rest);
        (shared > 1).then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn state(initiator: bool, secret: &str, ephemeral: &str) -> snow::HandshakeState {
        let ephemeral = Secret::from_bytes(bytes(ephemeral).try_into().unwrap());
        let primitives = Primitives { curve: Curve::X25519, ephemeral };
        let (secret, prologue) = (bytes(secret), bytes("4a6f686e2047616c74"));
        let builder = snow::Builder::with_resolver(
            "Noise_XX_25519_AESGCM_SHA256".parse().unwrap(),
            Box::new(primitives),
        );
        let builder = builder.local_private_key(&secret).unwrap().prologue(&prologue).unwrap();
        if initiator { builder.build_initiator() } else { builder.build_responder() }.unwrap()
    }

    /// Vector of the Noise implementation Cacophony, as `snow` ships it.
    #[test]
    fn the_primitives_match_a_public_test_vector() {
        let mut initiator = state(
            true,
            "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
            "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
        );
        let mut responder = state(
            false,
            "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
            "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
        );
        let messages = VECTOR;
        let mut buffer = [0; 256];
        for (n, (payload, expected)) in messages.into_iter().enumerate().take(3) {
            let (from, to) = match n % 2 {
                0 => (&mut initiator, &mut responder),
                _ => (&mut responder, &mut initiator),
            };
            let len = from.write_message(&bytes(payload), &mut buffer).unwrap();
            assert_eq!(buffer[..len], bytes(expected), "message {n}");
            let mut plain = [0; 256];
            let read = to.read_message(&buffer[..len], &mut plain).unwrap();
            assert_eq!(plain[..read], bytes(payload));
        }
        assert_eq!(initiator.get_handshake_hash(), responder.get_handshake_hash());
        assert_eq!(initiator.get_handshake_hash(), bytes(VECTOR_HASH));
        let (mut initiator, mut responder) =
            (initiator.into_transport_mode().unwrap(), responder.into_transport_mode().unwrap());
        for (n, (payload, expected)) in messages.into_iter().enumerate().skip(3) {
            let (from, to) = match n % 2 {
                0 => (&mut initiator, &mut responder),
                _ => (&mut responder, &mut initiator),
            };
            let len = from.write_message(&bytes(payload), &mut buffer).unwrap();
            assert_eq!(buffer[..len], bytes(expected), "message {n}");
            let mut plain = [0; 256];
            let read = to.read_message(&buffer[..len], &mut plain).unwrap();
            assert_eq!(plain[..read], bytes(payload));
        }
    }

    #[test]
    fn keys_of_small_order_are_refused() {
        for curve in [Curve::X25519, Curve::Toy] {
            for element in [0, 1] {
                let mut small = [0; KEY_SIZE];
                small[0] = element;
                assert!(curve.shared(&[7; KEY_SIZE], small).is_none());
            }
        }
    }

    const VECTOR_HASH: &str = "1b7aefb1125762aa21a252890d00af54519638b76437444538f9a52f21e2e0dc";

    const VECTOR: [(&str, &str); 6] = [
        (
            "4c756477696720766f6e204d69736573",
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444c756477696720766f6e204d\
             69736573",
        ),
        (
            "4d757272617920526f746862617264",
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843757117acceb05bd7a45733bc\
             22015c97a9d0cbaf41b80446d5988ff5127235d76b79eade70f473d6a4ef521fdcbeda5340d01e028ba793fc\
             059f2724a83af05f12dda0448a7621a926b379a92477fd",
        ),
        (
            "462e20412e20486179656b",
            "c90f1cf77eba4e50edb038991565e36c9758943a989229b6051244dc4fbecb6946744b401af2ee1a5881b65f\
             bb87fd07cb6a328ececc9ce6ce84c399dc332d4fd521fa4bb7f467ce909395",
        ),
        ("4361726c204d656e676572", "bc3fa77f6aca3e8466d7dc6bea10013e88a6a29add5132b461806c"),
        (
            "4a65616e2d426170746973746520536179",
            "250b01074cdfe0df2ecf8ccbf1737b15a2ddb5b52fd9a396604e9c793cee3b3bb9",
        ),
        (
            "457567656e2042f6686d20766f6e2042617765726b",
            "449d4d433b3cdc3d02bf6fc881774b9df54366ebcffb9689bb13f14709822cd7ef42bcdb4d",
        ),
    ];
}
