use std::{fmt, net::Ipv6Addr};

/// The host and the port of a server.
///
/// ```
/// use tower_dist_ratelimit::backend::toolkit::Address;
///
/// let address = Address::parse("[::1]", 6379).unwrap();
/// assert_eq!((&*address.host, address.port), ("::1", 6379));
/// assert_eq!(address.to_string(), "[::1]:6379");
/// assert_eq!(Address::parse("cache:1", 6379).unwrap().port, 1);
/// assert_eq!(Address::parse("cache:no", 6379), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Usually a name or an IP address. An IPv6 address has no brackets.
    pub host: String,
    /// The port. [`parse`](Self::parse) accepts 1 to 65535.
    pub port: u16,
}

impl Address {
    /// Reads `host`, `host:port`, `[v6]`, `[v6]:port` or `v6:port`, where `v6` is an IPv6 address. Redis Cluster writes
    /// the last form. If the text has no port, the port is `default_port`. An IPv6 address without a port needs
    /// brackets. In an IPv6 address without brackets, the text after the last colon is read as the port. Returns `None`
    /// if the host or the port is invalid.
    #[must_use]
    pub fn parse(text: &str, default_port: u16) -> Option<Self> {
        // Splits at the last colon, because Redis Cluster writes IPv6 addresses without brackets.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (text, default_port),
        };
        let inner = host.strip_prefix('[').and_then(|v6| v6.strip_suffix(']'));
        let host = inner.unwrap_or(host);
        // An IPv6 address can have a zone, such as `%eth0`.
        let (ip, _) = host.split_once('%').unwrap_or((host, ""));
        let is_v6 = ip.parse::<Ipv6Addr>().is_ok();
        let is_host = !host.is_empty() && !host.contains([' ', '/', '@', '[', ']']);
        (is_host && port != 0 && (is_v6 || !host.contains(':'))).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_colons_is_an_ipv6_address() {
        let parsed = |text| Address::parse(text, 6379).map(|one| (one.host, one.port));
        for (text, host, port) in [
            ("cache", "cache", 6379),
            ("cache:1", "cache", 1),
            ("[::1]", "::1", 6379),
            ("[::1]:1", "::1", 1),
            ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
            ("::1:6380", "::1", 6380),
            ("2001:db8::7:6380", "2001:db8::7", 6380),
        ] {
            assert_eq!(parsed(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in [
            "",
            ":",
            ":1",
            "cache:",
            "cache:0",
            "cache:65536",
            "[]",
            "[]:1",
            "[::1",
            "::1]:1",
            "[::1]1",
            "[::1]x:1",
            "[::1]:",
            "a b:1",
            "a@b:1",
            "::1",
            "2001:db8::1",
            "a:b:1",
            "[a:b]",
            "[:]:1",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
