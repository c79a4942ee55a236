mod forwarded;
mod node;
mod trusted;

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, header::FORWARDED};

pub use self::trusted::TrustedProxies;
use super::{IntoKey, KeyExtractor, KeySink, RequestParts, peer_addr};
use crate::BuildError;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// One key per client address, also behind trusted proxies. In IPv4, each host has a key. In IPv6, each /64 network has
/// a key.
///
/// Each proxy appends the address of its own peer to a header: `X-Forwarded-For`, or `Forwarded` with
/// [`TrustedProxies::forwarded`]. So the limit starts with the [peer](super::peer_addr()) of the connection, and then
/// reads the header from the right. While an address belongs to a trusted proxy, the limit moves on to the address that
/// this proxy appended. The first untrusted address is the client. An untrusted client can forge only entries further
/// left, and these never become its key.
///
/// An entry that is not an address (`unknown`, an obfuscated name, garbage) ends the search. The request then counts
/// for the trusted proxy that appended the entry. Empty entries are skipped. If the search finds no untrusted address,
/// the last address found is the client. By default, a request without a peer address is rejected with status 500, as
/// with [`peer_addr`](super::peer_addr()).
///
/// ```
/// use std::net::SocketAddr;
///
/// use http::Request;
/// use tower_dist_ratelimit::TrustedProxies;
/// use tower_dist_ratelimit::key::{self, KeyExtractor, KeySink, RequestParts};
///
/// // The network of the load balancers.
/// let client_ip = key::client_ip(TrustedProxies::none().cidr("10.0.0.0/8"));
/// let key = |forwarded_for: &str| {
///     let mut request = Request::builder().header("x-forwarded-for", forwarded_for).body(()).ok()?;
///     request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 443)));
///     let mut sink = KeySink::new();
///     client_ip.extract(RequestParts::new(&request), &mut sink)?;
///     Some(sink.bytes().to_vec())
/// };
/// assert_ne!(key("192.0.2.7"), key("192.0.2.8"));
/// // A client cannot change its key with an entry of its own: the load balancer appends the client's address.
/// assert_eq!(key("192.0.2.7"), key("198.51.100.1, 192.0.2.7"));
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

    /// Returns the nearest address that does not belong to a trusted proxy. If no hop is left, or if the next hop has
    /// no address (`None`), returns the last address found.
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
