use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads the address of a node (RFC 7239, section 6): an address with or without a port. Proxies write this form to
/// `X-Forwarded-For`, too. An IPv6 address with a port is in brackets. Returns `None` for `unknown`, an obfuscated name
/// and garbage.
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Some(text) = text.strip_prefix('[') {
        let (address, port) = text.split_once(']')?;
        let port = port.strip_prefix(':').or(port.is_empty().then_some("0"))?;
        let address = address.parse::<Ipv6Addr>().ok()?;
        return is_port(port).then_some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (address, port) = text.split_once(':')?;
    is_port(port).then_some(address.parse::<Ipv4Addr>().ok()?.into())
}

/// Returns whether a text has the form of a port: one to five digits, or an obfuscated name.
fn is_port(text: &str) -> bool {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match text.strip_prefix('_') {
        Some(obfuscated) => !obfuscated.is_empty() && obfuscated.bytes().all(name),
        None => matches!(text.len(), 1..=5) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
