//! Peer addresses, and client addresses behind proxies.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_peer_is_its_address_or_its_ipv6_network() {
    let mut service = service(Policy::new("peer", slow(1)).by(key::peer_addr()));
    let peer = |address: &str| {
        let mut request = get();
        request
            .extensions_mut()
            .insert(address.parse::<SocketAddr>().unwrap());
        request
    };
    assert_eq!(
        send(&mut service, peer("192.0.2.1:1000")).await.status(),
        OK
    );
    assert_eq!(
        send(&mut service, peer("[::ffff:192.0.2.1]:1001"))
            .await
            .status(),
        REFUSED
    );
    assert_eq!(
        send(&mut service, peer("[2001:db8:0:1::1]:1000"))
            .await
            .status(),
        OK
    );
    assert_eq!(
        send(&mut service, peer("[2001:db8:0:1:f::2]:1000"))
            .await
            .status(),
        REFUSED
    );
    assert_eq!(
        send(&mut service, peer("[2001:db8:0:2::1]:1000"))
            .await
            .status(),
        OK
    );
}

#[tokio::test(start_paused = true)]
async fn one_key_or_else_another_and_never_the_one_for_the_other() {
    // The same text in another header is another client.
    let either = key::header("key").or(key::header("other").or(key::peer_addr()));
    let policy = Policy::new("either", slow(1)).by(either);
    let mut service = service(policy.missing_key(MissingKey::Reject));
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
    assert_eq!(send(&mut service, with("other", "a")).await.status(), OK);
    assert_eq!(send(&mut service, from("a")).await.status(), REFUSED);
    let both = by("192.0.2.1:1", with("other", "a"));
    assert_eq!(send(&mut service, both).await.status(), REFUSED);
    let peer = || by("192.0.2.1:1", get());
    assert_eq!(send(&mut service, peer()).await.status(), OK);
    assert_eq!(send(&mut service, peer()).await.status(), REFUSED);
    // Header bytes that equal an IPv4 address are not the key of that address.
    let posing = http::HeaderValue::from_bytes(&[192, 168, 200, 201]).unwrap();
    let mut request = get();
    request.headers_mut().insert("key", posing);
    assert_eq!(send(&mut service, request).await.status(), OK);
    let posed_as = by("192.168.200.201:1", get());
    assert_eq!(send(&mut service, posed_as).await.status(), OK);
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

/// The three ways to provide an address.
fn names_three_ways(text: &str) {
    for way in [
        "into_make_service_with_connect_info",
        "axum-08",
        "tonic-014",
        "SocketAddr extension",
    ] {
        assert!(text.contains(way), "{way} is not in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_address_is_an_internal_error_that_names_three_ways_to_provide_one() {
    let policies = || {
        [
            Policy::new("peer", slow(1)).by(key::peer_addr()),
            Policy::new("client", slow(1)).by(key::client_ip(TrustedProxies::private())),
            Policy::new("either", slow(1)).by(key::header("key").or(key::peer_addr())),
            Policy::new("both", slow(1)).by((key::method(), key::peer_addr())),
        ]
    };
    for policy in policies() {
        let mut service = service(policy);
        for _ in 0..2 {
            let response = send(&mut service, get()).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(field(&response, "retry-after"), None);
            assert_eq!(field(&response, "ratelimit"), None);
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(
                (&body["status"], &body["type"]),
                (&500.into(), &"about:blank".into())
            );
            names_three_ways(body["detail"].as_str().unwrap());
        }
        // No key is charged.
        assert_eq!(
            send(&mut service, by("192.0.2.1:1", get())).await.status(),
            OK
        );
    }
    for policy in policies() {
        let mut service = service(policy.missing_key(MissingKey::Shared));
        assert_eq!(send(&mut service, get()).await.status(), OK);
        assert_eq!(send(&mut service, get()).await.status(), REFUSED);
    }
}

#[tokio::test(start_paused = true)]
async fn the_hint_is_that_of_the_policy_whose_key_is_missing() {
    let token = Policy::new("token", slow(1)).by(key::header("token"));
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("peer", slow(1)).by(key::peer_addr()))
        .limit(token.missing_key(MissingKey::Error))
        .build()
        .unwrap()
        .layer(Probe::default());
    let detail = |body: &[u8]| {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        body["detail"].as_str().map(str::to_owned)
    };
    let response = send(&mut service, by("192.0.2.1:1", get())).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(detail(response.body()), None, "the address is there");
    let response = send(&mut service, get()).await;
    names_three_ways(&detail(response.body()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn grpc_calls_without_an_address_are_internal_errors() {
    let builder = RateLimitLayer::builder(Memory::default());
    let builder = builder.limit(Policy::new("peer", slow(1)).by(key::peer_addr()));
    let mut service = builder.grpc().build().unwrap().layer(Probe::default());
    let response = send(&mut service, get()).await;
    assert_eq!(field(&response, "grpc-status"), Some("13"));
    names_three_ways(field(&response, "grpc-message").unwrap());
}

proptest::proptest! {
    #[test]
    fn no_header_bytes_panic_or_bypass_the_limit(
        name in 0..4_usize,
        mut value in proptest::collection::vec(b' '..=255, 0..200),
    ) {
        // The remaining bytes are valid in a header.
        value.retain(|&byte| byte != 127);
        let name = ["key", "authorization", "x-forwarded-for", "forwarded"][name];
        let value = http::HeaderValue::from_bytes(&value).unwrap();
        let proxies = TrustedProxies::private;
        let ip = key::client_ip(proxies()).or(key::client_ip(proxies().forwarded()));
        let by = key::bearer().or(key::header("key")).or(ip);
        let policy = Policy::new("any", slow(1)).by(by);
        let layer = RateLimitLayer::builder(Memory::with_capacity(16)).limit(policy);
        let mut service = layer.build().unwrap().layer(Probe::default());
        let mut request = by_peer();
        request.headers_mut().insert(name, value);
        let again = request.clone();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            assert_eq!(send(&mut service, request).await.status(), OK);
            assert_eq!(send(&mut service, again).await.status(), REFUSED);
        });
    }
}

/// A request from a trusted proxy.
fn by_peer() -> Request<()> {
    by("10.0.0.1:1", get())
}

#[tokio::test(start_paused = true)]
async fn clients_behind_a_trusted_proxy_have_separate_keys() {
    let proxies = TrustedProxies::none().cidr("10.0.0.0/8");
    let mut service = service(Policy::new("client", slow(1)).by(key::client_ip(proxies)));
    let client = |list: &str| by("10.0.0.1:1", with("x-forwarded-for", list));
    assert_eq!(send(&mut service, client("203.0.113.1")).await.status(), OK);
    assert_eq!(send(&mut service, client("203.0.113.2")).await.status(), OK);
    // tower_governor takes the leftmost address, which the client itself has written.
    let spoofed = client("198.51.100.1, 203.0.113.1");
    assert_eq!(send(&mut service, spoofed).await.status(), REFUSED);
    // axum_gcra cannot read these.
    let ipv6 = |host: &str| client(&format!("[2001:db8::{host}]:443"));
    assert_eq!(send(&mut service, ipv6("1")).await.status(), OK);
    assert_eq!(send(&mut service, ipv6("2")).await.status(), REFUSED);
}
