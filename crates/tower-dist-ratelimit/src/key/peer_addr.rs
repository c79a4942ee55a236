use std::net::{IpAddr, SocketAddr};

use super::{IntoKey, KeyExtractor, KeySink, RequestParts};

/// One key per peer address of the connection: a host in IPv4, a /64 network in IPv6. The port does not count.
///
/// The limit looks for the address in the request's extensions, in this order:
///
/// | extension | requirement |
/// |---|---|
/// | axum's `ConnectInfo<SocketAddr>` | feature `axum-08`; serve the router with `into_make_service_with_connect_info::<SocketAddr>()` |
/// | axum's `MockConnectInfo<SocketAddr>`, for tests | feature `axum-08` |
/// | tonic's `TcpConnectInfo` | feature `tonic-014`; tonic's server inserts it for TCP connections, with or without tonic's own TLS |
/// | `SocketAddr` | a layer of yours inserts it |
///
/// A request without an address usually means that the server is misconfigured. By default, the limit rejects it with
/// status 500 (gRPC: `INTERNAL`), and the response names the ways to provide an address. With the `tracing` feature,
/// the limit also logs these ways for the first request without an address. Set
/// [`MissingKey::Shared`](crate::MissingKey::Shared) if all requests without an address should share one bucket, for
/// example behind a Unix socket.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::net::SocketAddr;
///
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     .limit(Policy::new("per-client", Quota::per_second(10)).by(key::peer_addr()))
///     .build()?;
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(bytes::Bytes::new()))
/// }));
/// let mut request = Request::new(());
/// assert_eq!(service.clone().oneshot(request.clone()).await?.status(), 500);
/// request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 1], 443)));
/// assert_eq!(service.oneshot(request).await?.status(), 200);
/// # Ok(())
/// # }
/// ```
///
/// Behind a proxy, the peer usually is the proxy, so all clients of the proxy share one bucket. This key ignores
/// forwarding headers, because clients can forge them. [`client_ip`](super::client_ip()) reads them if the peer is a
/// trusted proxy.
pub fn peer_addr() -> impl KeyExtractor {
    PeerAddr
}

struct PeerAddr;

impl KeyExtractor for PeerAddr {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        peer(head)?.write(sink)
    }

    fn hint(&self) -> Option<&'static str> {
        Some(HINT)
    }
}

/// The ways to provide an address, and the setting for requests without one.
pub(super) const HINT: &str = "the peer's address is not among the request's extensions: serve axum's router with \
     into_make_service_with_connect_info::<SocketAddr>(), enable tower-dist-ratelimit's feature for the framework \
     (axum-08 or tonic-014), or insert a SocketAddr extension; to have one bucket for all requests without an address, \
     set missing_key(MissingKey::Shared)";

/// The peer address in the request's extensions.
pub(super) fn peer(head: RequestParts<'_>) -> Option<IpAddr> {
    let extensions = head.extensions();
    #[cfg(feature = "axum-08")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
        let real = extensions.get().map(|&ConnectInfo(peer)| peer);
        let mocked = || extensions.get().map(|&MockConnectInfo(peer)| peer);
        if let Some(peer) = real.or_else(mocked) {
            return Some(SocketAddr::ip(&peer));
        }
    }
    #[cfg(feature = "tonic-014")]
    if let Some(info) = extensions
        .get::<tonic::transport::server::TcpConnectInfo>()
        // Tonic has no address if the system no longer knows the peer. A layer may then have inserted a `SocketAddr`.
        && let Some(peer) = info.remote_addr()
    {
        return Some(peer.ip());
    }
    extensions.get().map(SocketAddr::ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<T: Clone + Send + Sync + 'static>(extension: T) -> (Vec<u8>, bool) {
        let mut request = http::Request::new(());
        request.extensions_mut().insert(extension);
        let mut sink = KeySink::new();
        let (_, found) = sink.key(|sink| peer_addr().extract(RequestParts::new(&request), sink));
        (sink.bytes().to_vec(), found)
    }

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_peer_is_the_host_not_the_port() {
        assert_eq!(key(socket("192.0.2.1:80")), key(socket("192.0.2.1:81")));
        assert_ne!(key(socket("192.0.2.1:80")), key(socket("192.0.2.2:80")));
        assert!(key(socket("192.0.2.1:80")).1);
    }

    #[test]
    fn without_an_address_the_key_is_missing() {
        assert_eq!(key(()), (Vec::new(), false));
    }

    #[cfg(feature = "axum-08")]
    #[test]
    fn the_peer_of_an_axum_server_is_found() {
        let peer = socket("[2001:db8::1]:80");
        assert_eq!(key(axum::extract::ConnectInfo(peer)), key(peer));
    }

    #[cfg(feature = "axum-08")]
    #[test]
    fn the_mocked_peer_of_an_axum_test_is_found() {
        let peer = socket("192.0.2.9:80");
        assert_eq!(
            key(axum::extract::connect_info::MockConnectInfo(peer)),
            key(peer)
        );
    }

    #[cfg(feature = "tonic-014")]
    #[test]
    fn the_peer_of_a_tonic_server_is_found() {
        let peer = socket("192.0.2.9:80");
        let info = tonic::transport::server::TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(peer),
        };
        assert_eq!(key(info), key(peer));
    }

    #[cfg(feature = "tonic-014")]
    #[test]
    fn an_inserted_address_counts_if_a_tonic_server_does_not_know_its_peer() {
        let info = tonic::transport::server::TcpConnectInfo {
            local_addr: None,
            remote_addr: None,
        };
        assert_eq!(key(info.clone()), (Vec::new(), false));
        let mut request = http::Request::new(());
        request.extensions_mut().insert(info);
        request.extensions_mut().insert(socket("192.0.2.9:80"));
        let found = peer(RequestParts::new(&request));
        assert_eq!(found, Some(socket("192.0.2.9:80").ip()));
    }
}
