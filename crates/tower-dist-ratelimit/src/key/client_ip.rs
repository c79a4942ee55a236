mod forwarded;
mod node;
mod trusted;

use std::net::IpAddr;

use http::HeaderName;

use self::node::Hop;
pub use self::trusted::TrustedProxies;
use super::{IntoKey, KeyExtractor, KeySink, RequestParts, peer_addr};
use crate::BuildError;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address behind proxies, from [`client_ip`].
#[derive(Clone, Debug)]
pub struct ClientIp {
    trusted: TrustedProxies,
}

/// One key per client address, also when the client comes by proxies that you trust: a host in IPv4, a /64 network in
/// IPv6.
///
/// Every proxy on the way writes down, behind what is there already, who came to it. So the list is read from the right,
/// starting with the [peer](super::peer_addr()): as long as an address belongs to a trusted proxy, the one before it is
/// believed. The first that does not is the client's. What the client itself has written stands further left and is
/// never looked at, so it cannot be spoofed, unlike the leftmost address.
///
/// An entry that is no address (`unknown`, an obfuscated name, garbage) ends the search at the trusted proxy that wrote
/// it: those clients share that proxy's bucket. If all are trusted, the request comes from inside, from the leftmost. A request without
/// a peer address is answered 500, as by [`peer_addr`](super::peer_addr()).
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, TrustedProxies, key};
///
/// // The load balancers' network.
/// let proxies = TrustedProxies::none().cidr("10.0.0.0/8");
/// Policy::new("per-client", Quota::per_second(10)).by(key::client_ip(proxies));
/// ```
#[must_use]
pub fn client_ip(trusted: TrustedProxies) -> ClientIp {
    ClientIp { trusted }
}

impl ClientIp {
    fn address(&self, head: RequestParts<'_>) -> Option<IpAddr> {
        let mut nearest = peer_addr::peer(head)?.to_canonical();
        if !self.trusted.contains(nearest) {
            return Some(nearest);
        }
        // True as long as the search goes on.
        let mut follow = |hop: Hop| {
            let Hop::Address(address) = hop else {
                return false;
            };
            nearest = address;
            self.trusted.contains(address)
        };
        if self.trusted.reads_forwarded() {
            let lines = head.headers().get_all(http::header::FORWARDED);
            let _ = lines.iter().rev().all(|line| {
                let mut hops = forwarded::hops(line.as_bytes());
                hops.reverse();
                hops.into_iter().all(&mut follow)
            });
        } else {
            let lines = head.headers().get_all(X_FORWARDED_FOR);
            let _ = lines.iter().rev().all(|line| {
                let entries = line.as_bytes().rsplit(|&byte| byte == b',');
                let mut entries = entries.map(<[u8]>::trim_ascii);
                entries.all(|entry| entry.is_empty() || follow(Hop::of(entry)))
            });
        }
        Some(nearest)
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        self.address(head)?.write(sink)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.trusted.check()
    }

    fn hint(&self) -> Option<&'static str> {
        Some(peer_addr::HINT)
    }
}

#[cfg(test)]
mod tests;
