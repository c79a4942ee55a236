use std::net::IpAddr;

use http::HeaderValue;

use super::KeySink;

/// A value that can be a key: text (`&str`, `String`), bytes (`&[u8]`), any integer, an `IpAddr`, a `HeaderValue`, a
/// tuple of two to four of these, and an `Option` of these.
///
/// - `None`, also inside a tuple, is a missing key.
/// - An IPv6 address counts as its /64 network, which usually belongs to one subscriber (RFC 6177). An IPv4-mapped IPv6
///   address counts as the IPv4 address.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota};
///
/// Policy::new("per-tenant-and-method", Quota::per_second(10)).by_fn(|head| {
///     let tenant = head.headers().get("x-tenant").cloned();
///     (tenant, head.method().to_string())
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    label = "not a key",
    note = "keys are `&'static str`, `String`, `&'static [u8]`, integers, `IpAddr`, `HeaderValue`, two to four of these, and `Option` of these",
    note = "a key that is borrowed from the request goes through `by_str`"
)]
pub trait IntoKey {
    /// Writes the parts of the key. `None` means that the key is missing.
    fn write(self, sink: &mut KeySink) -> Option<()>;

    /// Returns the bytes of the key's only part, so that `Memory` can hash them without a copy. Must be `None`, unless
    /// [`write`](Self::write) adds exactly these bytes as one part and returns `Some`.
    ///
    /// # Default
    ///
    /// `None`, which is always correct.
    #[inline]
    fn only_part(&self) -> Option<&[u8]> {
        None
    }
}

macro_rules! bytes {
    ($($bytes:ty),*) => {$(
        impl IntoKey for $bytes {
            #[inline]
            fn write(self, sink: &mut KeySink) -> Option<()> {
                sink.part(self.as_ref());
                Some(())
            }

            #[inline]
            fn only_part(&self) -> Option<&[u8]> {
                Some(self.as_ref())
            }
        }
    )*};
}

bytes!(&[u8], &str, String, HeaderValue);

// A number is a part of 8 bytes, or of 16 bytes if it is negative or above `u64::MAX`.
macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl IntoKey for $integer {
            #[inline]
            fn write(self, sink: &mut KeySink) -> Option<()> {
                match u64::try_from(self) {
                    Ok(number) => number.to_le_bytes().as_slice().write(sink),
                    Err(_) => (self as i128).to_le_bytes().as_slice().write(sink),
                }
            }
        }
    )*};
}

integers!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);

impl IntoKey for IpAddr {
    #[inline]
    fn write(self, sink: &mut KeySink) -> Option<()> {
        match self.to_canonical() {
            IpAddr::V4(v4) => v4.octets().as_slice().write(sink),
            // The /64 network.
            IpAddr::V6(v6) => v6.octets()[..8].write(sink),
        }
    }
}

// A tuple is one key with the parts of all its elements. If one element is missing, the whole key is missing.
macro_rules! parts {
    ($($name:ident: $place:tt),*) => {
        impl<$($name: IntoKey),*> IntoKey for ($($name),*) {
            #[inline]
            fn write(self, sink: &mut KeySink) -> Option<()> {
                $(self.$place.write(sink)?;)*
                Some(())
            }
        }
    };
}

parts!(A: 0, B: 1);
parts!(A: 0, B: 1, C: 2);
parts!(A: 0, B: 1, C: 2, D: 3);

impl<K: IntoKey> IntoKey for Option<K> {
    #[inline]
    fn write(self, sink: &mut KeySink) -> Option<()> {
        self?.write(sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Vec<u8> {
        let mut sink = KeySink::new();
        text.parse::<IpAddr>().unwrap().write(&mut sink);
        sink.bytes().to_vec()
    }

    #[test]
    fn ipv6_addresses_count_by_their_64_network() {
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
    }

    #[test]
    fn an_ipv4_address_written_as_ipv6_is_the_ipv4_address() {
        assert_eq!(address("::ffff:192.0.2.7"), address("192.0.2.7"));
        assert_ne!(address("::ffff:192.0.2.7"), address("::ffff:192.0.2.8"));
    }
}
