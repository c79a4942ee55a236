use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Who came to a proxy, as the proxy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    Address(IpAddr),
    /// Somebody who has no address: `unknown`, an obfuscated name, or what cannot be read.
    Unknown,
}

impl Hop {
    /// Reads a node of RFC 7239, section 6, which is also what proxies write into `X-Forwarded-For`: an address, IPv6 in
    /// brackets if a port follows, with or without a port.
    pub(super) fn of(text: &[u8]) -> Self {
        address(text).map_or(Self::Unknown, |address| {
            Self::Address(address.to_canonical())
        })
    }
}

fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Some(text) = text.strip_prefix('[') {
        let (address, port) = text.split_once(']')?;
        let port = port.strip_prefix(':').or(port.is_empty().then_some("0"))?;
        return is_port(port).then_some(address.parse::<Ipv6Addr>().ok()?.into());
    }
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (address, port) = text.split_once(':')?;
    is_port(port).then_some(address.parse::<Ipv4Addr>().ok()?.into())
}

/// A number, or a name that stands for one.
fn is_port(text: &str) -> bool {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match text.strip_prefix('_') {
        Some(obfuscated) => !obfuscated.is_empty() && obfuscated.bytes().all(name),
        None => matches!(text.len(), 1..=5) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
