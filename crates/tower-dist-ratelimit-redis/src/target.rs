use std::fmt;

pub(super) use tower_dist_ratelimit::backend::toolkit::Address;
use tower_dist_ratelimit::backend::toolkit::ConnectError;

/// The parsed URL of one or more servers. The type has no `Debug`, because that would show the password.
pub(super) struct ServerUrl {
    pub(super) kind: Deployment,
    pub(super) addresses: Vec<Address>,
    #[cfg(feature = "tls")]
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    Standalone,
    Cluster,
    /// The addresses are sentinels of the primary with this name.
    Sentinel(String),
}

impl ServerUrl {
    /// Reads `scheme://[[user][:password]@]host[:port][,host[:port]..][/path]`.
    pub(super) fn parse(url: &str) -> Result<Self, ConnectError> {
        let wrong = |problem: &str| ConnectError::new("the URL of a Redis server", problem);
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(wrong("must have the form redis://host:port"));
        };
        let (tls, kind) = match scheme {
            "redis" => (false, Deployment::Standalone),
            "rediss" => (true, Deployment::Standalone),
            "redis-cluster" => (false, Deployment::Cluster),
            "rediss-cluster" => (true, Deployment::Cluster),
            "redis-sentinel" => (false, Deployment::Sentinel(String::new())),
            "rediss-sentinel" => (true, Deployment::Sentinel(String::new())),
            _ => {
                return Err(wrong(
                    "must begin with redis://, rediss://, redis-cluster://, rediss-cluster://, redis-sentinel:// or rediss-sentinel://",
                ));
            }
        };
        if tls && cfg!(not(feature = "tls")) {
            return Err(wrong(
                "needs TLS, which is the feature `tls` of the crate tower-dist-ratelimit-redis",
            ));
        }
        if rest.contains(['?', '#']) {
            return Err(wrong(
                "must have no query or fragment; in a password ? is %3F and # is %23",
            ));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match who.split_once(':') {
            Some((user, password)) => (decode(user), decode(password).map(Some)),
            None => (decode(who), Some(None)),
        };
        let (Some(user), Some(password)) = (user, password) else {
            return Err(wrong(
                "has a user or password that is not UTF-8, percent-encoded",
            ));
        };
        let default_port = match kind {
            Deployment::Sentinel(_) => 26379,
            _ => 6379,
        };
        let addresses: Vec<Address> = hosts
            .split(',')
            .map(|host| Address::parse(host, default_port))
            .collect::<Option<_>>()
            .filter(|_| !path.contains('@'))
            .ok_or_else(|| {
                wrong("must name a host, and a port from 1 to 65535 if any; in a password / is %2F")
            })?;
        let (kind, db) = match kind {
            Deployment::Sentinel(_) => {
                let (name, db) = path.split_once('/').unwrap_or((path, ""));
                let name = decode(name).filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| {
                    wrong("must name the primary that the sentinels watch: redis-sentinel://host:port/name")
                })?;
                (Deployment::Sentinel(name), db)
            }
            kind => (kind, path),
        };
        if kind == Deployment::Standalone && addresses.len() > 1 {
            return Err(wrong(
                "must name one host, unless it is redis-cluster:// or redis-sentinel://",
            ));
        }
        let db = match db {
            "" => 0,
            db => db
                .parse::<u32>()
                .map_err(|_| wrong("may end in the number of a database, from 0"))?,
        };
        if kind == Deployment::Cluster && db != 0 {
            return Err(wrong("has a database, but a Cluster has only the one"));
        }
        Ok(Self {
            kind,
            addresses,
            #[cfg(feature = "tls")]
            tls,
            user: Some(user).filter(|user| !user.is_empty()),
            password: password.filter(|password| !password.is_empty()),
            db: db.into(),
        })
    }
}

/// Shows the hosts and ports, without the user and password.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, address) in self.addresses.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

/// Decodes the percent-encoding `%xx`.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, others @ ..] = rest else {
            return None;
        };
        rest = others;
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn a_url_names_the_server_the_user_and_the_database() {
        let target = ServerUrl::parse("redis://app:p%40ss%3aword@cache.example:6380/3").unwrap();
        assert_eq!((target.kind, target.db), (Deployment::Standalone, 3));
        #[cfg(feature = "tls")]
        assert!(!target.tls);
        assert_eq!(target.addresses, [at("cache.example", 6380)]);
        assert_eq!(target.user.as_deref(), Some("app"));
        assert_eq!(target.password.as_deref(), Some("p@ss:word"));
        let target = ServerUrl::parse("redis://:secret@[::1]").unwrap();
        assert_eq!(target.addresses, [at("::1", 6379)]);
        assert_eq!(
            (target.user, target.password.as_deref()),
            (None, Some("secret"))
        );
        let target = ServerUrl::parse("redis://:@cache.example").unwrap();
        assert_eq!((target.user, target.password), (None, None));
    }

    #[test]
    fn a_url_with_tls_needs_the_feature_and_the_error_names_it() {
        for url in [
            "rediss://cache",
            "rediss-cluster://a,b",
            "rediss-sentinel://a/main",
        ] {
            let target = ServerUrl::parse(url);
            #[cfg(feature = "tls")]
            assert!(target.unwrap().tls);
            #[cfg(not(feature = "tls"))]
            {
                let error = target.err().unwrap().to_string();
                let feature = "the feature `tls` of the crate tower-dist-ratelimit-redis";
                assert!(error.contains(feature), "{error}");
            }
        }
    }

    #[test]
    fn clusters_and_sentinels_have_several_hosts() {
        let target = ServerUrl::parse("redis-cluster://a:7000,b,[::1]:7002").unwrap();
        assert_eq!(target.kind, Deployment::Cluster);
        assert_eq!(
            target.addresses,
            [at("a", 7000), at("b", 6379), at("::1", 7002)]
        );
        let target = ServerUrl::parse("redis-sentinel://a,b:1/main%20one/2").unwrap();
        assert_eq!(target.kind, Deployment::Sentinel("main one".to_owned()));
        assert_eq!((target.addresses[0].port, target.db), (26379, 2));
        assert_eq!(target.to_string(), "a:26379,b:1");
    }

    #[test]
    fn an_invalid_url_is_an_error_that_does_not_contain_its_password() {
        let form = "must have the form redis://host:port";
        let scheme = "must begin with redis://, rediss://, redis-cluster://, rediss-cluster://, redis-sentinel:// or rediss-sentinel://";
        let host = "must name a host, and a port from 1 to 65535 if any; in a password / is %2F";
        let one = "must name one host, unless it is redis-cluster:// or redis-sentinel://";
        let database = "may end in the number of a database, from 0";
        let encoded = "has a user or password that is not UTF-8, percent-encoded";
        let cluster = "has a database, but a Cluster has only the one";
        let primary =
            "must name the primary that the sentinels watch: redis-sentinel://host:port/name";
        let query = "must have no query or fragment; in a password ? is %3F and # is %23";
        for (url, says) in [
            ("", form),
            ("localhost:6379", form),
            ("http://u:secret@localhost", scheme),
            ("redis://u:secret@", host),
            ("redis://u:secret@localhost:99999", host),
            ("redis://u:secret@localhost:0", host),
            ("redis://u:secret@a,b", one),
            ("redis://u:secret@localhost/x", database),
            ("redis://u:secret@localhost/-1", database),
            ("redis://u:%zz@localhost", encoded),
            ("redis://u:%ff@localhost", encoded),
            ("redis-cluster://u:secret@localhost/1", cluster),
            ("redis-sentinel://u:secret@localhost", primary),
            ("redis://u:secret@localhost?protocol=3", query),
            ("redis://u:secret#1@localhost", query),
            ("redis://u:secret/1@localhost", host),
            ("redis-sentinel://u:26/secret@localhost/main", host),
        ] {
            let error = ServerUrl::parse(url).err().unwrap().to_string();
            assert_eq!(error, format!("the URL of a Redis server: {says}"), "{url}");
        }
    }
}
