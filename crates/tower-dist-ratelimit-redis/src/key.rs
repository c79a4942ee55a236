pub(super) use tower_dist_ratelimit::backend::toolkit::Tag;
use tower_dist_ratelimit::backend::toolkit::tag;

/// The Redis keys of one policy: `prefix:version:{tag}:policy`, where the tag is a hash of the caller's key. A
/// colocated policy has the keys `prefix:version:{place}:policy:tag`, where `place` is a hash of the name it is
/// colocated under.
///
/// The version names the layout of the value, so that a policy with another algorithm, or a later release of this
/// crate, does not misread the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyKeys {
    before: Box<[u8]>,
    after: Box<[u8]>,
    /// The Cluster slot of all keys, if the policy is colocated.
    slot: Option<u16>,
}

impl PolicyKeys {
    pub(super) fn new(prefix: &str, version: &str, policy: &str, place: Option<&str>) -> Self {
        let place = place.map(|place| tag(place.as_bytes()));
        let (before, after) = match place {
            Some(tag) => {
                let tag = String::from_utf8_lossy(&tag);
                let before = format!("{prefix}:{version}:{{{tag}}}:{policy}:");
                (before, String::new())
            }
            None => (format!("{prefix}:{version}:{{"), format!("}}:{policy}")),
        };
        Self {
            before: before.into_bytes().into(),
            after: after.into_bytes().into(),
            slot: place.as_ref().map(slot),
        }
    }

    /// Returns the Cluster slot of the key with this tag.
    pub(super) fn slot(&self, tag: &Tag) -> u16 {
        self.slot.unwrap_or_else(|| slot(tag))
    }

    /// Replaces the contents of `out` with the key that has this tag.
    pub(super) fn write(&self, tag: &Tag, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.before);
        out.extend_from_slice(tag);
        out.extend_from_slice(&self.after);
    }
}

/// Returns the slot of the keys that have this tag in braces: the tag's CRC-16 (XMODEM), modulo the number of slots.
fn slot(tag: &Tag) -> u16 {
    let crc = tag.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_tag_without_hostile_parts() {
        let mut key = Vec::new();
        for hostile in [&b""[..], b"}{", b"{a}", b"\0\n", &[0xff; 65_536]] {
            PolicyKeys::new("rl", "b1", "a}{b", None).write(&tag(hostile), &mut key);
            let text = std::str::from_utf8(&key).unwrap();
            assert!(text.starts_with("rl:b1:{") && text.ends_with("}:a}{b"));
            assert_eq!(text.find('}'), Some("rl:b1:{".len() + 32));
        }
    }
}
