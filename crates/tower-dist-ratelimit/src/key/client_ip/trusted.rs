use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::BuildError;

/// The proxies that you run, or that run for you: whose word on who came to them is taken.
///
/// # Default
///
/// None. Then forwarding headers are not looked at. Proxies that you trust are believed in what they append to
/// `X-Forwarded-For`; with [`forwarded`](Self::forwarded), to `Forwarded` instead. Only one of the two is read, because a proxy that
/// writes the one lets the other pass as the client wrote it.
///
/// # Errors
///
/// A network that is none is reported when the limiter is built.
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
    /// What was given and is no network.
    wrong: Option<String>,
    forwarded: bool,
}

impl TrustedProxies {
    /// Nobody is trusted; for clients that connect without a proxy.
    pub fn none() -> Self {
        Self {
            networks: Vec::new(),
            wrong: None,
            forwarded: false,
        }
    }

    /// All addresses that no one on the internet can connect from: loopback, RFC 1918, link-local, and IPv6's unique local
    /// addresses (RFC 4193). For proxies in the same private network, if nobody else is in it.
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

    /// Trusts a network, such as `10.0.0.0/8` or `2001:db8::/32`, or a single address. IPv4 written as IPv6 (`::ffff:10.0.0.0/104`)
    /// is IPv4.
    pub fn cidr(mut self, network: &str) -> Self {
        let address = || network.parse::<IpAddr>().map(IpNet::from);
        match network.parse().or_else(|_| address()) {
            Ok(network) => self.networks.push(canonical(network)),
            Err(_) => self.wrong = self.wrong.or_else(|| Some(network.to_owned())),
        }
        self
    }

    /// Reads `Forwarded` (RFC 7239) and not `X-Forwarded-For`: say so if that is what your proxies write.
    pub fn forwarded(self) -> Self {
        Self {
            forwarded: true,
            ..self
        }
    }

    pub(super) fn reads_forwarded(&self) -> bool {
        self.forwarded
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }

    pub(super) fn check(&self) -> Result<(), BuildError> {
        self.wrong.as_ref().map_or(Ok(()), |wrong| {
            Err(BuildError::new(
                "cidr",
                format_args!("{wrong:?}"),
                "a network such as 10.0.0.0/8, or an address",
            ))
        })
    }
}

/// As the addresses that are looked for in it.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    // Of the 128 bits the last 32 are the address.
    let prefix = v6.prefix_len().checked_sub(96);
    let mapped = v6.addr().to_ipv4_mapped().zip(prefix);
    let v4 = mapped.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
    v4.map_or(network, IpNet::V4)
}
