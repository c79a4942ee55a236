//! The headers of an HTTP intermediary: hop-by-hop headers stay on their connection, and the next hop receives the
//! origin of the request (RFC 9110, sections 7.6.1 and 7.6.3).

use std::net::SocketAddr;

use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};

static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Removes the headers that describe one connection, including those named in `Connection`.
pub(crate) fn strip(headers: &mut HeaderMap) {
    // If a message has both, the encoding counts (RFC 9112, section 6.3). Without the encoding, a wrong length would
    // truncate the next hop's message.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    // Messages have few headers, so a comparison of each takes less time than a look-up of each name.
    let ends_here = |name: &&HeaderName| HOP_BY_HOP.contains(name) || named.contains(name);
    let ending: Vec<HeaderName> = headers.keys().filter(ends_here).cloned().collect();
    for name in ending {
        headers.remove(name);
    }
}

/// Prepares a request's headers for the next hop, whose `Host` is `host`. `Expect` was answered when the body was read.
pub(crate) fn forward(headers: &mut HeaderMap, peer: SocketAddr, host: HeaderValue) {
    strip(headers);
    headers.remove(EXPECT);
    if let Some(requested) = headers.insert(HOST, host) {
        headers.insert(X_FORWARDED_HOST, requested);
    }
    let peer = peer.ip().to_canonical().to_string();
    // A second header line is equivalent to a longer list.
    if let Ok(peer) = HeaderValue::try_from(peer) {
        headers.append(X_FORWARDED_FOR, peer);
    }
    headers.append(VIA, HeaderValue::from_static("1.1 gateway"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                let name = HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn hop_by_hop_headers_stay_on_their_connection() {
        let mut map = headers(&[
            ("connection", "close, X-Mine"),
            ("connection", "x-other, , not a name"),
            ("x-mine", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "secret"),
            ("accept", "*/*"),
        ]);
        strip(&mut map);
        assert_eq!(map, headers(&[("accept", "*/*")]));
    }

    #[test]
    fn the_next_hop_learns_where_a_request_came_from() {
        let mut map = headers(&[
            ("host", "shop.example"),
            ("expect", "100-continue"),
            ("x-forwarded-for", "192.0.2.1"),
        ]);
        let host = HeaderValue::from_static("upstream.example");
        forward(&mut map, SocketAddr::from(([127, 0, 0, 1], 1234)), host);
        let expected = headers(&[
            ("host", "upstream.example"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-for", "127.0.0.1"),
            ("via", "1.1 gateway"),
        ]);
        assert_eq!(map, expected);
    }
}
