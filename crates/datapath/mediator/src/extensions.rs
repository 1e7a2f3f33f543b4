//! The headers between an IPv6 header and what it carries: their numbers, and how to get past them.
//!
//! One place, so that a tunnel is not looked for behind other headers than a checksum. Any bytes are fine; the work is
//! bounded by [`MAX_HEADERS`].

/// The most headers that are followed: more than anyone sends.
pub const MAX_HEADERS: usize = 16;

/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;

// https://www.iana.org/assignments/ipv6-parameters, without ESP, behind which nothing can be read.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// What comes behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A protocol, by its number.
    Protocol(u8),
    /// A piece of a packet that is not the first.
    Fragment,
    /// More headers than are followed, or than are there.
    Beyond,
}

/// Extension headers that were walked past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// What comes behind them.
    pub end: End,
    /// Bytes that they take. That many need not be there.
    pub len: usize,
    /// A routing header has addresses left to visit: the destination in the IP header is not the last one.
    pub routed: bool,
    /// What follows is the first of several pieces of a packet.
    pub piece: bool,
}

impl Extensions {
    /// Walks through `bytes`, which follow an IPv6 header whose next header is `next`.
    #[must_use]
    pub fn walk(bytes: &[u8], next: u8) -> Self {
        let mut walk = Self { end: End::Protocol(next), len: 0, routed: false, piece: false };
        for _ in 0..MAX_HEADERS {
            let End::Protocol(next) = walk.end else { return walk };
            match next {
                HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HOST_IDENTITY
                | SHIM6 => walk.pass(next, bytes),
                _ => return walk,
            }
        }
        Self { end: End::Beyond, ..walk }
    }

    fn pass(&mut self, kind: u8, bytes: &[u8]) {
        // None is shorter than eight bytes.
        let Some(header) = bytes.get(self.len..).and_then(<[u8]>::first_chunk::<8>) else {
            self.end = End::Beyond;
            return;
        };
        let length = usize::from(header[1]);
        self.routed |= kind == ROUTING && header[3] != 0;
        self.end = End::Protocol(header[0]);
        self.len += match kind {
            AUTHENTICATION => (length + 2) * 4,
            // Eight bytes whatever is in the place of their length; offset and the flag that more follow.
            FRAGMENT => {
                let word = u16::from_be_bytes([header[2], header[3]]);
                self.piece |= word & 1 != 0;
                if word & !7 != 0 {
                    self.end = End::Fragment;
                }
                8
            }
            _ => (length + 1) * 8,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESP: u8 = 50;

    #[test]
    fn each_header_has_its_length() {
        for (kind, header, len) in [
            (HOP_BY_HOP, vec![UDP, 0, 1, 4, 0, 0, 0, 0], 8),
            (DESTINATION, vec![UDP, 1, 0, 0, 0, 0, 0, 0], 16),
            (MOBILITY, vec![UDP, 2, 0, 0, 0, 0, 0, 0], 24),
            (AUTHENTICATION, vec![UDP, 4, 0, 0, 0, 0, 0, 0], 24),
            (FRAGMENT, vec![UDP, 255, 0, 6, 0, 0, 0, 1], 8),
            (ROUTING, vec![UDP, 2, 0, 0, 0, 0, 0, 0], 24),
        ] {
            let walked = Extensions { end: End::Protocol(UDP), len, routed: false, piece: false };
            assert_eq!(Extensions::walk(&header, kind), walked, "{kind}");
        }
        assert!(Extensions::walk(&[UDP, 2, 0, 1, 0, 0, 0, 0], ROUTING).routed);
        let none = Extensions { end: End::Protocol(TCP), len: 0, routed: false, piece: false };
        assert_eq!(Extensions::walk(&[], TCP), none);
        assert_eq!(Extensions::walk(&[0; 8], ESP).end, End::Protocol(ESP));
    }

    #[test]
    fn pieces_and_what_is_too_far_are_told() {
        let piece = |word: [u8; 2]| Extensions::walk(&[UDP, 0, word[0], word[1], 0, 0, 0, 1], FRAGMENT);
        assert_eq!(piece([0, 8]).end, End::Fragment);
        assert_eq!(piece([0xff, 0xf8]).end, End::Fragment);
        assert_eq!(
            (piece([0, 1]).end, piece([0, 1]).piece),
            (End::Protocol(UDP), true),
            "the first of several"
        );
        assert!(!piece([0, 0]).piece, "the only one");
        let chain = [DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(100);
        for len in 0..chain.len() {
            assert_eq!(Extensions::walk(&chain[..len], HOP_BY_HOP).end, End::Beyond, "{len}");
        }
        // The last header says that it is longer than the packet: whoever reads what is behind finds nothing there.
        assert_eq!(Extensions::walk(&[UDP, 255, 0, 0, 0, 0, 0, 0], DESTINATION).len, 2048);
    }
}
