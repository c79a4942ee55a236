use tower_dist_ratelimit::backend::toolkit::{Keys, Tag, tag, tag_bits};

/// A Memcached key: `prefix:layout:tag:name`. For aligned windows, the number of the window follows. Most keys fit
/// inline.
///
/// Keys have at most 220 characters and no spaces; Memcached allows 250 characters.
pub(super) type Key = smallvec::SmallVec<[u8; 96]>;

/// Returns the Memcached key of the caller's key with this tag. `window` is the number of an aligned window.
pub(super) fn key(keys: &Keys, tag: &Tag, window: Option<u64>) -> Key {
    let mut key = Key::new();
    for part in keys.of(tag) {
        key.extend_from_slice(part);
    }
    if let Some(number) = window {
        key.extend_from_slice(format!(":{number}").as_bytes());
    }
    key
}

/// Returns the server of the key with this tag, by rendezvous hashing (Thaler and Ravishankar 1998): each pair of a
/// server and a key has a weight, and the server with the greatest weight holds the key. If one of `n` servers is
/// removed, about one key in `n` moves. The order of the servers does not matter.
pub(super) fn server<'a, T>(servers: &'a [(u64, T)], tag: &Tag) -> &'a T {
    let bits = tag_bits(tag);
    let weight = |seed: u64| mixed(mixed(seed) ^ bits);
    let heaviest = servers.iter().max_by_key(|(seed, _)| weight(*seed));
    heaviest.map_or(&servers[0].1, |(_, server)| server)
}

/// Returns a hash of a server's name, from which the server's weights are computed.
pub(super) fn seed(server: &str) -> u64 {
    tag_bits(&tag(server.as_bytes()))
}

/// Mixes 64 bits (the finisher of SplitMix64; Steele, Lea and Flood 2014).
fn mixed(bits: u64) -> u64 {
    let mixed = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_short_and_have_no_spaces() {
        let prefix = "p".repeat(64);
        for name in ["login", "a b", &"n".repeat(64), &" ".repeat(64), "\"\\%{}"] {
            let keys = Keys::new(&prefix, "b1", name);
            let key = key(&keys, &tag(b" \r\n\0"), Some(u64::MAX));
            assert!(key.len() <= 220, "{}", key.len());
            assert!(key.iter().all(u8::is_ascii_graphic));
        }
        let key = key(&Keys::new("rl", "b1", "login"), &tag(b""), Some(7));
        let text = b"rl:b1:af1349b9f5f9a1a6a0404dea36dcc949:login:7";
        assert_eq!(&key[..], text);
    }

    #[test]
    fn a_removed_server_moves_only_its_own_keys() {
        let names = ["a:1", "b:1", "c:1", "d:1"];
        let servers: Vec<(u64, usize)> = names.map(seed).into_iter().zip(0..).collect();
        let mut shares = [0; 4];
        for number in 0..4000_u32 {
            let tag = tag(&number.to_le_bytes());
            let place = *server(&servers, &tag);
            shares[place] += 1;
            if place < 3 {
                assert_eq!(*server(&servers[..3], &tag), place);
            }
            let mut turned = servers.clone();
            turned.rotate_left(1);
            assert_eq!(*server(&turned, &tag), place);
        }
        assert!(
            shares.iter().all(|share| (850..1150).contains(share)),
            "{shares:?}"
        );
    }
}
