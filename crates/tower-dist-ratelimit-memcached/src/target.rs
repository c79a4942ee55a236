use tower_dist_ratelimit::backend::toolkit::{Address, ConnectError};

/// Maximum number of servers in a URL.
const MOST: usize = 64;

/// Reads `memcached://host[:port][,host[:port]..]`.
pub(super) fn parse(url: &str) -> Result<Vec<Address>, ConnectError> {
    let wrong = |problem: &str| ConnectError::new("the URL of Memcached servers", problem);
    let Some(hosts) = url.strip_prefix("memcached://") else {
        return Err(wrong("must have the form memcached://host:port"));
    };
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    if hosts.contains('@') {
        return Err(wrong("must have no user or password"));
    }
    if hosts.contains(['/', '?', '#']) {
        return Err(wrong("must have no path, query or fragment"));
    }
    let addresses: Vec<Address> = hosts
        .split(',')
        .map(|host| Address::parse(host, 11_211))
        .collect::<Option<_>>()
        .ok_or_else(|| wrong("must name a host, and a port from 1 to 65535 if any"))?;
    if addresses.len() > MOST {
        return Err(wrong("names more than 64 servers"));
    }
    let again = |(n, address): (usize, &Address)| addresses[..n].contains(address);
    if addresses.iter().enumerate().any(again) {
        return Err(wrong("names a server twice"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_one_server_or_several() {
        let named = |url| -> Vec<String> {
            let addresses = parse(url).unwrap();
            addresses.iter().map(ToString::to_string).collect()
        };
        assert_eq!(named("memcached://cache"), ["cache:11211"]);
        assert_eq!(named("memcached://cache:1/"), ["cache:1"]);
        assert_eq!(
            named("memcached://a:1,b,[::1]:2"),
            ["a:1", "b:11211", "[::1]:2"]
        );
    }

    #[test]
    fn an_invalid_url_is_an_error_that_does_not_contain_its_password() {
        let form = "must have the form memcached://host:port";
        let host = "must name a host, and a port from 1 to 65535 if any";
        let many: Vec<String> = (0..65).map(|n| format!("a{n}")).collect();
        let many = format!("memcached://{}", many.join(","));
        for (url, says) in [
            ("", form),
            ("localhost:11211", form),
            ("memcache://localhost", form),
            ("memcached://", host),
            ("memcached://a,", host),
            ("memcached://a:0", host),
            ("memcached://a:99999", host),
            ("memcached://u:secret@a", "must have no user or password"),
            ("memcached://a/1", "must have no path, query or fragment"),
            ("memcached://a?b", "must have no path, query or fragment"),
            ("memcached://a,b:11211,a:11211", "names a server twice"),
            (&many, "names more than 64 servers"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            let expected = format!("the URL of Memcached servers: {says}");
            assert_eq!(error, expected, "{url}");
        }
    }
}
