mod forwarded;
mod node;
mod trusted;

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, header::FORWARDED};

pub use self::trusted::TrustedProxies;
use super::{IntoKey, KeyExtractor, KeySink, RequestParts, peer_addr};
use crate::BuildError;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// One key per client address, also behind trusted proxies: a host in IPv4, a /64 network in IPv6.
///
/// Each proxy appends the address of its own peer to the header. So the limit starts with the
/// [peer](super::peer_addr()) of the connection, and then reads the header from the right. While an address belongs to
/// a trusted proxy, the limit moves on to the address that this proxy appended. The first untrusted address is the
/// client. An untrusted client can forge only entries further left, and these never become its key.
///
/// An entry that is not an address (`unknown`, an obfuscated name, garbage) ends the search. The request then
/// counts for the trusted proxy that appended the entry. If all addresses are trusted, the leftmost one is the
/// client. By default, a request without a peer address is rejected with status 500, as with
/// [`peer_addr`](super::peer_addr()).
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, TrustedProxies, key};
///
/// // The network of the load balancers.
/// let proxies = TrustedProxies::none().cidr("10.0.0.0/8");
/// let policy = Policy::new("per-client", Quota::per_second(10)).by(key::client_ip(proxies));
/// assert_eq!(policy.name(), "per-client");
/// ```
pub fn client_ip(trusted: TrustedProxies) -> impl KeyExtractor {
    ClientIp(trusted)
}

struct ClientIp(TrustedProxies);

impl ClientIp {
    fn address(&self, head: RequestParts<'_>) -> Option<IpAddr> {
        let peer = peer_addr::peer(head)?.to_canonical();
        let lines = |name| {
            let lines = head.headers().get_all(name).iter();
            lines.rev().map(HeaderValue::as_bytes)
        };
        Some(if self.0.forwarded {
            let hops = lines(FORWARDED).flat_map(|line| forwarded::hops(line).into_iter().rev());
            self.nearest(peer, hops)
        } else {
            let entries = lines(X_FORWARDED_FOR).flat_map(|line| line.rsplit(|&byte| byte == b','));
            let entries = entries.map(<[u8]>::trim_ascii);
            let entries = entries.filter(|entry| !entry.is_empty());
            self.nearest(peer, entries.map(node::address))
        })
    }

    /// Returns the nearest address that does not belong to a trusted proxy. The search ends after the last hop, or
    /// before a hop without an address, which is `None`. Then the last address found counts.
    fn nearest(&self, peer: IpAddr, mut hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut nearest = peer;
        while self.0.contains(nearest)
            && let Some(address) = hops.next().flatten()
        {
            nearest = address;
        }
        nearest
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        self.address(head)?.write(sink)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.0.check()
    }

    fn hint(&self) -> Option<&'static str> {
        Some(peer_addr::HINT)
    }
}

#[cfg(test)]
mod tests;
