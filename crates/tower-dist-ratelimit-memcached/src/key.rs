use bytes::{BufMut, BytesMut};
use tower_dist_ratelimit::{
    Algorithm, Policy,
    backend::toolkit::{Tag, tag},
};

/// The Memcached keys of what is counted together: `prefix:version:tag:name`, and the number of the window behind it
/// where each has an item of its own.
///
/// The version names the layout of what is kept there, so that a policy that counts in another way than it did, or a
/// later release of this crate, does not misread it. Keys have 220 characters at most and no spaces; 250 are allowed.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    before: Box<[u8]>,
    after: Box<[u8]>,
}

/// A key as long as any.
pub(super) type Key = smallvec::SmallVec<[u8; 96]>;

impl Keys {
    pub(super) fn new(prefix: &str, version: &str, name: &str) -> Self {
        // Names can have spaces, which keys cannot.
        let name = match name.contains(' ') {
            true => format!(":{}", digest(name)),
            false => name.to_owned(),
        };
        Self {
            before: format!("{prefix}:{version}:").into_bytes().into(),
            after: format!(":{name}").into_bytes().into(),
        }
    }

    /// The key of a partition, and of one of its windows.
    pub(super) fn of(&self, tag: &Tag, window: Option<u64>) -> Key {
        let mut key = Key::new();
        key.extend_from_slice(&self.before);
        key.extend_from_slice(tag);
        key.extend_from_slice(&self.after);
        if let Some(number) = window {
            key.push(b':');
            key.extend_from_slice(number.to_string().as_bytes());
        }
        key
    }
}

/// What a policy's states mean: those of buckets whatever the quota is, those of windows with windows of one length. Whoever
/// has used up a long one would else have to wait for its end when it has become a short one.
pub(super) fn layout(policy: &Policy) -> String {
    let window = policy.quota().window().as_nanos();
    match policy.algorithm() {
        Algorithm::TokenBucket => "b1".to_owned(),
        Algorithm::LeakyBucket => "m1".to_owned(),
        Algorithm::LeakyQueue { .. } => "q1".to_owned(),
        Algorithm::FixedWindowFromFirstRequest => format!("h1.{window}"),
        Algorithm::FixedWindow { staggered } => {
            format!("{}1.{window}", if staggered { 'p' } else { 'f' })
        }
        Algorithm::SlidingWindowBuckets { count } => format!("w1.{window}.{count}"),
        Algorithm::SlidingWindowStrict { count } => format!("v1.{window}.{count}"),
        Algorithm::SlidingWindow => format!("t1.{window}"),
        // Rejected by `slot`.
        _ => format!("l1.{window}"),
    }
}

/// Sixteen digits that stand for a text.
pub(super) fn digest(text: &str) -> String {
    String::from_utf8_lossy(&tag(text.as_bytes())[..16]).into_owned()
}

/// 64 bits that tell keys apart, the same on every machine.
pub(super) fn bits(tag: &Tag) -> u64 {
    tag[..16].iter().fold(0, |bits, &digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            _ => digit.wrapping_sub(b'a') + 10,
        };
        bits << 4 | u64::from(value & 15)
    })
}

/// Which of so many servers has a key: the one of the greatest weight for it (rendezvous hashing; Thaler and
/// Ravishankar 1998). Of `n` servers one that is added or gone changes the place of one key in `n`, and their order says
/// nothing.
pub(super) fn server(seeds: &[u64], tag: &Tag) -> usize {
    if seeds.len() < 2 {
        return 0;
    }
    let bits = bits(tag);
    let weight = |seed: u64| mixed(mixed(seed) ^ bits);
    let weights = seeds.iter().enumerate();
    let heaviest = weights.max_by_key(|&(_, &seed)| weight(seed));
    heaviest.map_or(0, |(place, _)| place)
}

/// A server's seed, by its name.
pub(super) fn seed(server: &str) -> u64 {
    bits(&tag(server.as_bytes()))
}

/// Spreads 64 bits (the finisher of SplitMix64; Steele, Lea and Flood 2014).
fn mixed(bits: u64) -> u64 {
    let mixed = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// A value as it stands in an item: words in as many bytes as they need, after one that names the layout and with a
/// length before those of each policy.
pub(super) mod value {
    use super::{BufMut, BytesMut};
    use tower_dist_ratelimit::algorithm::Words;

    const LAYOUT: u8 = 0xA1;

    pub(crate) fn write(states: &[Words]) -> BytesMut {
        let mut out = BytesMut::with_capacity(32);
        out.put_u8(LAYOUT);
        for state in states {
            put(&mut out, u64::try_from(state.len()).unwrap_or(0));
            for &word in state {
                put(&mut out, word);
            }
        }
        out
    }

    /// The states of so many policies, if that is what it is.
    pub(crate) fn read(value: &[u8], policies: usize) -> Option<Vec<Words>> {
        let (&LAYOUT, mut rest) = value.split_first()? else {
            return None;
        };
        let mut states = Vec::with_capacity(policies);
        for _ in 0..policies {
            let length = get(&mut rest)?;
            let words = (0..length).map(|_| get(&mut rest));
            states.push(words.collect::<Option<Words>>()?);
        }
        rest.is_empty().then_some(states)
    }

    /// Seven bits in each byte, the lowest first.
    fn put(out: &mut BytesMut, mut word: u64) {
        while word >= 0x80 {
            out.put_u8(u8::try_from(word & 0x7F).unwrap_or(0) | 0x80);
            word >>= 7;
        }
        out.put_u8(u8::try_from(word).unwrap_or(0));
    }

    fn get(rest: &mut &[u8]) -> Option<u64> {
        let mut word = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, others) = rest.split_first()?;
            *rest = others;
            let bits = u64::from(byte & 0x7F);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                return None;
            }
            word |= shifted;
            if byte < 0x80 {
                return Some(word);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tower_dist_ratelimit::algorithm::Words;

    #[test]
    fn keys_are_short_and_have_no_spaces() {
        let prefix = "p".repeat(64);
        for name in ["login", "a b", &"n".repeat(64), &" ".repeat(64), "\"\\%{}"] {
            let key = Keys::new(&prefix, "b1", name).of(&tag(b" \r\n\0"), Some(u64::MAX));
            assert!(key.len() <= 220, "{}", key.len());
            assert!(key.iter().all(u8::is_ascii_graphic));
        }
        let key = |name| Keys::new("rl", "b1", name).of(&tag(b""), None);
        assert_eq!(
            &key("login")[..],
            b"rl:b1:af1349b9f5f9a1a6a0404dea36dcc949:login"
        );
        assert_ne!(key("a b"), key("b a"));
    }

    #[test]
    fn a_server_that_is_gone_moves_only_its_own_keys() {
        let seeds: Vec<u64> = ["a:1", "b:1", "c:1", "d:1"].map(seed).to_vec();
        let mut shares = [0; 4];
        for number in 0..4000_u32 {
            let tag = tag(&number.to_le_bytes());
            let place = server(&seeds, &tag);
            shares[place] += 1;
            let mut fewer = seeds.clone();
            fewer.remove(3);
            if place < 3 {
                assert_eq!(server(&fewer, &tag), place);
            }
            let mut turned = seeds.clone();
            turned.rotate_left(1);
            assert_eq!(turned[server(&turned, &tag)], seeds[place]);
        }
        assert!(
            shares.iter().all(|share| (850..1150).contains(share)),
            "{shares:?}"
        );
    }

    proptest! {
        #[test]
        fn a_value_is_read_as_it_was_written(states in proptest::collection::vec(proptest::collection::vec(any::<u64>(), 0..5), 0..5)) {
            let states: Vec<Words> = states.into_iter().map(Words::from_vec).collect();
            let value = value::write(&states);
            prop_assert_eq!(value::read(&value, states.len()), Some(states.clone()));
            prop_assert_eq!(value::read(&value, states.len() + 1), None);
            prop_assert_eq!(value::read(&value[..value.len() - 1], states.len()), None);
        }

        #[test]
        fn no_value_is_too_strange_to_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..60), policies in 0..5_usize) {
            for layout in [0xA1, 0] {
                let mut value = vec![layout];
                value.extend_from_slice(&bytes);
                if let Some(states) = value::read(&value, policies) {
                    prop_assert_eq!(states.len(), policies);
                }
            }
        }
    }
}
