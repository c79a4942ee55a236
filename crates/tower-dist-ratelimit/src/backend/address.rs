use std::fmt;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::backend) struct Address {
    pub(in crate::backend) host: String,
    pub(in crate::backend) port: u16,
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

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(in crate::backend) fn address(text: &str, default_port: u16) -> Option<Address> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (
                host,
                if rest.is_empty() {
                    None
                } else {
                    Some(rest.strip_prefix(':')?)
                },
            )
        }
        None => match text.rsplit_once(':') {
            // An address of a Cluster's node has no brackets.
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Some(default_port), |port| port.parse().ok())?;
    let fine = !host.is_empty() && port != 0 && !host.contains([' ', '/', '@', '[', ']']);
    fine.then(|| Address {
        host: host.to_owned(),
        port,
    })
}
