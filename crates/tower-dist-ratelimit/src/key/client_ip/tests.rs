use std::net::SocketAddr;

use http::Request;
use proptest::prelude::*;

use super::*;

/// A proxy at 10.0.0.1, behind another at 192.0.2.1, and one in IPv6.
fn trusted() -> TrustedProxies {
    ["10.0.0.0/8", "192.0.2.1", "2001:db8:ffff::/48"]
        .into_iter()
        .fold(TrustedProxies::none(), TrustedProxies::cidr)
}

fn found(
    trusted: TrustedProxies,
    peer: &str,
    name: &str,
    lines: &[impl AsRef<[u8]>],
) -> Option<IpAddr> {
    let mut request = Request::new(());
    let peer: SocketAddr = peer.parse().unwrap();
    request.extensions_mut().insert(peer);
    for line in lines {
        let line = http::HeaderValue::from_bytes(line.as_ref()).unwrap();
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, line);
    }
    ClientIp(trusted).address(RequestParts::new(&request))
}

fn address(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn a_spoofed_x_forwarded_for_does_not_change_the_client() {
    const PROXY: &str = "10.0.0.1";
    for (lines, client) in [
        // Nothing: the proxy itself.
        (&[][..], PROXY),
        (&[""], PROXY),
        (&[" , ,,"], PROXY),
        // Ports, brackets, spaces, empty entries.
        (&["203.0.113.9"], "203.0.113.9"),
        (&["203.0.113.9:4711"], "203.0.113.9"),
        (&["\t203.0.113.9 , "], "203.0.113.9"),
        (&["2001:db8::7"], "2001:db8::7"),
        (&["[2001:db8::7]"], "2001:db8::7"),
        (&["[2001:db8::7]:443"], "2001:db8::7"),
        (&["::ffff:203.0.113.9"], "203.0.113.9"),
        (&["[::ffff:203.0.113.9]:80"], "203.0.113.9"),
        // The client's own entries are further left.
        (&["1.1.1.1, 203.0.113.9"], "203.0.113.9"),
        (&["10.9.9.9, 203.0.113.9"], "203.0.113.9"),
        (&["1.1.1.1", "203.0.113.9"], "203.0.113.9"),
        (&["1.1.1.1, 2.2.2.2", "3.3.3.3,203.0.113.9"], "203.0.113.9"),
        (&["garbage, 203.0.113.9"], "203.0.113.9"),
        (&["\"1.1.1.1, 203.0.113.9"], "203.0.113.9"),
        (&["\u{fc}\u{1f600}, 203.0.113.9"], "203.0.113.9"),
        // Trusted proxies are passed over, over lines too.
        (&["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        (&["203.0.113.9, 192.0.2.1, 10.0.0.2"], "203.0.113.9"),
        (&["203.0.113.9", "192.0.2.1", "10.0.0.2"], "203.0.113.9"),
        (&["203.0.113.9, 2001:db8:ffff::5"], "203.0.113.9"),
        (&["203.0.113.9, ::ffff:10.0.0.2"], "203.0.113.9"),
        (&["1.1.1.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        // The neighbour of a trusted address is not trusted.
        (&["203.0.113.9, 192.0.2.2"], "192.0.2.2"),
        // All addresses are trusted: the leftmost is the client.
        (&["10.0.0.4, 10.0.0.3"], "10.0.0.4"),
        // No address: the trusted proxy that wrote it.
        (&["unknown"], PROXY),
        (&["1.1.1.1, unknown"], PROXY),
        (&["1.1.1.1, unknown, 10.0.0.2"], "10.0.0.2"),
        (&["1.1.1.1, 203.0.113.9:http"], PROXY),
        (&["1.1.1.1, 203.0.113.9:123456"], PROXY),
        (&["1.1.1.1, 203.0.113.9:"], PROXY),
        (&["1.1.1.1, 203.0.113.9:_"], PROXY),
        (&["1.1.1.1, 203.0.113.9:_a/b"], PROXY),
        (&["1.1.1.1, 203.0.113.009"], PROXY),
        (&["1.1.1.1, 203.0.113"], PROXY),
        (&["1.1.1.1, 0x7f.1"], PROXY),
        (&["1.1.1.1, 3405803785"], PROXY),
        (&["1.1.1.1, [203.0.113.9]"], PROXY),
        (&["1.1.1.1, [2001:db8::7"], PROXY),
        (&["1.1.1.1, [2001:db8::7]443"], PROXY),
        (&["1.1.1.1, 2001:db8::7]"], PROXY),
        (&["1.1.1.1, fe80::1%eth0"], PROXY),
        (&["1.1.1.1, 203.0.113.9;203.0.113.8"], PROXY),
        (&["1.1.1.1, 203.0.113.9 203.0.113.8"], PROXY),
    ] {
        let found = found(trusted(), "10.0.0.1:999", "x-forwarded-for", lines);
        assert_eq!(found, address(client), "{lines:?}");
    }
}

#[test]
fn a_spoofed_forwarded_does_not_change_the_client() {
    const PROXY: &str = "10.0.0.1";
    for (lines, client) in [
        (&[][..], PROXY),
        (&[" , ,,"], PROXY),
        (&["for=203.0.113.9"], "203.0.113.9"),
        (&["For=203.0.113.9"], "203.0.113.9"),
        (&["for=\"203.0.113.9\""], "203.0.113.9"),
        (&["for=\"203.0.113.9:4711\""], "203.0.113.9"),
        (&["for=203.0.113.9:4711"], "203.0.113.9"),
        (&["for=\"203.0.113.9:_port\""], "203.0.113.9"),
        (&["for=\"[2001:db8::7]\""], "2001:db8::7"),
        (&["for=\"[2001:db8::7]:443\""], "2001:db8::7"),
        (&["for=[2001:db8::7]"], "2001:db8::7"),
        (&["for=\"\\203.0.113.9\""], "203.0.113.9"),
        (&["proto=https;for=203.0.113.9; by=10.0.0.1"], "203.0.113.9"),
        (&["for=1.1.1.1, for=203.0.113.9"], "203.0.113.9"),
        (&["for=1.1.1.1", "for=203.0.113.9"], "203.0.113.9"),
        (&["for=203.0.113.9, for=10.0.0.2"], "203.0.113.9"),
        (
            &["for=203.0.113.9", "for=10.0.0.2,for=192.0.2.1"],
            "203.0.113.9",
        ),
        (
            &["for=1.1.1.1;x=\"a,b;for=2.2.2.2\", for=203.0.113.9"],
            "203.0.113.9",
        ),
        (&["for=10.0.0.4, for=10.0.0.3"], "10.0.0.4"),
        // A line with an open quote has no address, even if a later line is valid.
        (&["for=\"", "for=203.0.113.9"], "203.0.113.9"),
        (&["for=\", for=203.0.113.9"], PROXY),
        (&["for=1.1.1.1;by=\", for=\"[2001:db8::7]\""], PROXY),
        // No address: the trusted proxy that wrote it.
        (&["for=1.1.1.1, for=unknown"], PROXY),
        (&["for=1.1.1.1, for=_hidden"], PROXY),
        (
            &["for=1.1.1.1, for=\"_hidden:80\", for=10.0.0.2"],
            "10.0.0.2",
        ),
        (&["for=1.1.1.1, by=10.0.0.1"], PROXY),
        (&["for=1.1.1.1, for=203.0.113.9;for=2.2.2.2"], PROXY),
        (&["for=1.1.1.1, for="], PROXY),
        (&["for=1.1.1.1, for"], PROXY),
        (&["for=1.1.1.1, =203.0.113.9"], PROXY),
        (&["for=1.1.1.1, for=203.0.113.9 for=2.2.2.2"], PROXY),
        (&["for=1.1.1.1, for = 203.0.113.9"], PROXY),
        (&["203.0.113.9"], PROXY),
    ] {
        let trusted = trusted().forwarded();
        let found = found(trusted, "10.0.0.1:999", "forwarded", lines);
        assert_eq!(found, address(client), "{lines:?}");
    }
}

#[test]
fn an_untrusted_peer_is_the_client_with_any_header() {
    for name in ["x-forwarded-for", "forwarded"] {
        for trusted in [TrustedProxies::none(), trusted(), trusted().forwarded()] {
            let found = found(
                trusted,
                "[::ffff:203.0.113.9]:1",
                name,
                &["for=1.1.1.1, 1.1.1.1"],
            );
            assert_eq!(found, address("203.0.113.9"), "{name}");
        }
    }
}

#[test]
fn a_field_that_the_proxies_do_not_write_is_not_read() {
    let other = found(trusted(), "10.0.0.1:1", "forwarded", &["for=1.1.1.1"]);
    assert_eq!(other, address("10.0.0.1"));
    let trusted = trusted().forwarded();
    let other = found(trusted, "10.0.0.1:1", "x-forwarded-for", &["1.1.1.1"]);
    assert_eq!(other, address("10.0.0.1"));
}

#[test]
fn without_a_peer_address_headers_are_ignored() {
    let request = Request::builder()
        .header("x-forwarded-for", "1.1.1.1")
        .body(())
        .unwrap();
    let key = ClientIp(TrustedProxies::private());
    assert_eq!(key.address(RequestParts::new(&request)), None);
}

#[test]
fn the_error_names_the_first_invalid_network() {
    let wrong = |networks: &[&str]| {
        let trusted = networks
            .iter()
            .fold(TrustedProxies::none(), |trusted, network| {
                trusted.cidr(network)
            });
        client_ip(trusted)
            .check()
            .map_err(|error| error.value().to_owned())
    };
    assert_eq!(wrong(&["10.0.0.0/8", "::1"]), Ok(()));
    assert_eq!(
        wrong(&["10.0.0.0/8", "10.0.0.0/33", "x", "::1"]),
        Err("\"10.0.0.0/33\"".to_owned())
    );
    for network in [
        "",
        " 10.0.0.0/8",
        "10.0.0.0/8,::1",
        "2001:db8::/129",
        "localhost",
        "*",
    ] {
        assert_eq!(wrong(&[network]), Err(format!("{network:?}")));
    }
}

#[test]
fn private_networks_are_not_on_the_internet() {
    let private = TrustedProxies::private();
    for inside in [
        "127.0.0.1",
        "10.1.2.3",
        "172.31.0.1",
        "192.168.1.1",
        "::1",
        "fd00::1",
        "fe80::1",
    ] {
        assert!(private.contains(inside.parse().unwrap()), "{inside}");
    }
    for outside in ["172.32.0.1", "100.64.0.1", "203.0.113.1", "2001:db8::1"] {
        assert!(!private.contains(outside.parse().unwrap()), "{outside}");
    }
}

/// Addresses are compared as IPv4 where they are that, so networks are, too.
#[test]
fn a_network_of_ipv4_written_as_ipv6_is_the_ipv4_network() {
    for written in ["::ffff:10.0.0.0/104", "::ffff:10.1.2.3/104", "10.0.0.0/8"] {
        let trusted = TrustedProxies::none().cidr(written);
        for peer in ["10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let found = found(trusted.clone(), peer, "x-forwarded-for", &["203.0.113.9"]);
            assert_eq!(found, address("203.0.113.9"), "{written} {peer}");
        }
        let found = found(trusted, "11.0.0.1:1", "x-forwarded-for", &["203.0.113.9"]);
        assert_eq!(found, address("11.0.0.1"), "{written}");
    }
    let one = TrustedProxies::none().cidr("::ffff:192.0.2.1");
    assert!(one.contains("192.0.2.1".parse().unwrap()));
    assert!(!one.contains("192.0.2.2".parse().unwrap()));
    // Not only of IPv4.
    let all = TrustedProxies::none().cidr("::/0");
    assert!(all.contains("2001:db8::1".parse().unwrap()));
    assert!(!all.contains("192.0.2.1".parse().unwrap()));
}

/// Longer than a server accepts.
#[test]
fn a_list_of_thousands_is_read_from_its_end() {
    let list = |entry: &str, last: &str| format!("{}{last}", format!("{entry}, ").repeat(20_000));
    for (entry, last, client) in [
        ("1.1.1.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.2", "10.0.0.3", "10.0.0.2"),
        ("unknown", "10.0.0.3", "10.0.0.3"),
        ("", "203.0.113.9", "203.0.113.9"),
    ] {
        let line = list(entry, last);
        let one = found(trusted(), "10.0.0.1:1", "x-forwarded-for", &[line]);
        assert_eq!(one, address(client));
        if !entry.is_empty() {
            let line = list(&format!("for={entry}"), &format!("for={last}"));
            let one = found(trusted().forwarded(), "10.0.0.1:1", "forwarded", &[line]);
            assert_eq!(one, address(client));
        }
    }
    let lines: Vec<_> = (0..5_000).map(|_| "10.0.0.2").collect();
    let found = found(trusted(), "10.0.0.1:1", "x-forwarded-for", &lines);
    assert_eq!(found, address("10.0.0.2"));
}

/// Entries of proxies and attackers, mixed.
fn hostile() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let printable = prop_oneof![b' '..127, 128..=255_u8];
    let bytes = proptest::collection::vec(printable, 0..80);
    let likely = "((for|by|x)?=?\"?\\[?[0-9a-f.:]{0,20}\\]?(:[0-9_]{1,6})?\"?[,; ]{0,2}){0,6}";
    let line = prop_oneof![bytes, likely.prop_map(String::into_bytes)];
    proptest::collection::vec(line, 0..4)
}

proptest! {
    #[test]
    fn no_bytes_panic_or_speak_for_a_peer_that_is_not_trusted(lines in hostile()) {
        for (name, trusted) in [
            ("x-forwarded-for", trusted()),
            ("forwarded", trusted().forwarded()),
        ] {
            found(trusted.clone(), "10.0.0.1:1", name, &lines);
            let found = found(trusted, "203.0.113.9:1", name, &lines);
            prop_assert_eq!(found, address("203.0.113.9"));
        }
    }

    #[test]
    fn entries_of_the_client_do_not_matter(lines in hostile(), last: std::net::Ipv6Addr) {
        let written = last.to_string();
        let mut lines = lines;
        lines.push(written.into_bytes());
        let last = IpAddr::V6(last).to_canonical();
        prop_assume!(!trusted().contains(last));
        let found = found(trusted(), "10.0.0.1:1", "x-forwarded-for", &lines);
        prop_assert_eq!(found, Some(last));
    }
}
