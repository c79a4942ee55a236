//! Finds the client behind proxies, with arbitrary bytes in the forwarding fields.
//!
//! Input: a byte that chooses the peer, then the field's lines.
#![no_main]

#[path = "shared/extractor.rs"]
mod extractor;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use http::{HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tower_dist_ratelimit::{TrustedProxies, key};

use self::extractor::Extractor;

/// The first peers are trusted.
const PEERS: [&str; 5] = [
    "10.0.0.1",
    "2001:db8:ffff::1",
    "::ffff:10.0.0.1",
    "203.0.113.9",
    "fe80::1",
];

fn trusted() -> TrustedProxies {
    let proxies = TrustedProxies::none().cidr("10.0.0.0/8");
    proxies.cidr("2001:db8:ffff::/48")
}

fn is_trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 0xdb8, 0xffff],
    }
}

static BY_LIST: LazyLock<Extractor> = LazyLock::new(|| Extractor::by(key::client_ip(trusted())));
static BY_FORWARDED: LazyLock<Extractor> =
    LazyLock::new(|| Extractor::by(key::client_ip(trusted().forwarded())));
static BY_PEER: LazyLock<Extractor> = LazyLock::new(|| Extractor::by(key::peer_addr()));

fn request(peer: IpAddr, name: &'static str, lines: &[HeaderValue]) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(SocketAddr::new(peer, 4711));
    for line in lines {
        request.headers_mut().append(name, line.clone());
    }
    request
}

/// The key of a client at this address.
fn of(address: IpAddr) -> Vec<u8> {
    BY_PEER.key(request(address, "x", &[]))
}

fuzz_target!(|data: &[u8]| {
    let [peer, lines @ ..] = data else {
        return;
    };
    let peer: IpAddr = PEERS[usize::from(*peer) % PEERS.len()].parse().unwrap();
    let lines = lines.split(|byte| *byte == b'\n');
    let lines: Vec<_> = lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    if lines.len() > 1_000 {
        return;
    }
    let by_list = BY_LIST.key(request(peer, "x-forwarded-for", &lines));
    assert_eq!(by_list, of(behind(peer, &lines)));

    let by_forwarded = |lines: &[HeaderValue]| BY_FORWARDED.key(request(peer, "forwarded", lines));
    if !is_trusted(peer.to_canonical()) {
        assert_eq!(by_forwarded(&lines), of(peer));
        return;
    }
    by_forwarded(&lines);
    for written in ["for=198.51.100.7", "for=\"[2001:db8::7]:443\";proto=https"] {
        let client = match written {
            "for=198.51.100.7" => "198.51.100.7",
            _ => "2001:db8::7",
        };
        let client = of(client.parse().unwrap());
        // The proxy's own line decides.
        let mut with_line = lines.clone();
        with_line.push(HeaderValue::from_static(written));
        assert_eq!(by_forwarded(&with_line), client);
        // The proxy's entry follows the client's bytes in one line: it decides, or the line is invalid and the proxy is
        // the client.
        if let Some(last) = lines.last() {
            let line = [last.as_bytes(), b", ", written.as_bytes()].concat();
            let mut in_line = lines.clone();
            in_line.pop();
            in_line.push(HeaderValue::from_bytes(&line).unwrap());
            let found = by_forwarded(&in_line);
            assert!(found == client || found == of(peer), "{line:?}");
        }
    }
});

/// The client that `X-Forwarded-For` names: a plain implementation that reads the list from its end.
fn behind(peer: IpAddr, lines: &[HeaderValue]) -> IpAddr {
    let peer = peer.to_canonical();
    let list: Vec<_> = lines.iter().map(HeaderValue::as_bytes).collect();
    let list = list.join(&b',');
    let mut nearest = peer;
    for entry in list.split(|byte| *byte == b',').rev() {
        let entry = entry.trim_ascii();
        if !is_trusted(nearest) {
            break;
        }
        if entry.is_empty() {
            continue;
        }
        match node(entry) {
            Some(address) => nearest = address.to_canonical(),
            None => break,
        }
    }
    nearest
}

/// An address with an optional port.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bare = |text: &str| {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        Some(IpAddr::V6(inside.parse::<Ipv6Addr>().ok()?))
    };
    if let Some(address) = bare(text) {
        return Some(address);
    }
    let (host, port) = text.rsplit_once(':')?;
    let digits = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let hidden = port.len() > 1
        && port.starts_with('_')
        && port
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !digits && !hidden {
        return None;
    }
    bare(host).or_else(|| Some(IpAddr::V4(host.parse().ok()?)))
}
