use std::fmt;

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
    /// A name or an IP address. An IPv6 address has no brackets.
    pub host: String,
    /// The port, from 1 to 65535.
    pub port: u16,
}

impl Address {
    /// Reads `host`, `host:port`, `[v6]`, `[v6]:port`, or `v6:port` as Redis Cluster writes it. Without a port in the
    /// text, the port is `default_port`. An IPv6 address without a port needs brackets, because the text after the last
    /// colon is the port. Returns `None` if the host or the port is invalid.
    #[must_use]
    pub fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':')?)),
                }
            }
            None => match text.rsplit_once(':') {
                // Splits at the last colon, because Redis Cluster writes IPv6 addresses without brackets.
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Some(default_port), |port| port.parse().ok())?;
        let is_valid = !host.is_empty() && port != 0 && !host.contains([' ', '/', '@', '[', ']']);
        is_valid.then(|| Self {
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
