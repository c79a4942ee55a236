use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::BuildError;

/// The proxies whose forwarding headers are trusted.
///
/// # Default
///
/// The limit reads `X-Forwarded-For`. With [`forwarded`](Self::forwarded) it reads `Forwarded` instead. It never reads
/// both headers, because a proxy that appends to one header can pass on the client's version of the other.
///
/// # Errors
///
/// Building the limit fails if a network is invalid.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, TrustedProxies, backend::Memory, key};
///
/// let by = |proxies| Policy::new("per-client", Quota::per_second(10)).by(key::client_ip(proxies));
/// let layer = |proxies| RateLimitLayer::builder(Memory::default()).limit(by(proxies)).build();
/// assert!(layer(TrustedProxies::private().cidr("203.0.113.7")).is_ok());
/// let error = layer(TrustedProxies::none().cidr("10.0.0.0/33")).unwrap_err();
/// assert_eq!((error.field(), error.value()), ("cidr", "\"10.0.0.0/33\""));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    /// The first text that is neither a network nor an address.
    wrong: Option<String>,
    pub(super) forwarded: bool,
}

impl TrustedProxies {
    /// Trusts no proxy, unless [`cidr`](Self::cidr) adds one. Without a trusted proxy, the limit ignores forwarding
    /// headers, as is right for clients that connect directly.
    pub fn none() -> Self {
        Self {
            networks: Vec::new(),
            wrong: None,
            forwarded: false,
        }
    }

    /// Trusts private addresses: loopback, RFC 1918, link-local, and IPv6's unique local
    /// addresses (RFC 4193). Use it if the private network contains your proxies and no clients.
    pub fn private() -> Self {
        [
            "127.0.0.0/8",
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "169.254.0.0/16",
            "::1/128",
            "fe80::/10",
            "fc00::/7",
        ]
        .into_iter()
        .fold(Self::none(), Self::cidr)
    }

    /// Also trusts a network such as `10.0.0.0/8` or `2001:db8::/32`, or a single address. An IPv4-mapped IPv6 network
    /// such as `::ffff:10.0.0.0/104` counts as the IPv4 network, here `10.0.0.0/8`.
    pub fn cidr(mut self, network: &str) -> Self {
        let address = || network.parse::<IpAddr>().map(IpNet::from);
        match network.parse().or_else(|_| address()) {
            Ok(network) => self.networks.push(canonical(network)),
            Err(_) => self.wrong = self.wrong.or_else(|| Some(network.to_owned())),
        }
        self
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`, for proxies that append to `Forwarded`.
    pub fn forwarded(mut self) -> Self {
        self.forwarded = true;
        self
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let mut networks = self.networks.iter();
        networks.any(|network| network.contains(&address))
    }

    pub(super) fn check(&self) -> Result<(), BuildError> {
        self.wrong.as_ref().map_or(Ok(()), |text| {
            let bound = "a network such as 10.0.0.0/8, or an address";
            Err(BuildError::new("cidr", format_args!("{text:?}"), bound))
        })
    }
}

/// Converts an IPv4-mapped IPv6 network to the IPv4 network. The addresses of requests are converted, too.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    // The last 32 of the 128 bits are the IPv4 address.
    let prefix = v6.prefix_len().checked_sub(96);
    let mapped = v6.addr().to_ipv4_mapped().zip(prefix);
    let v4 = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}
