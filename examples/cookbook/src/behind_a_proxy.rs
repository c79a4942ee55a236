//! The client's address behind a load balancer.
//!
//! Behind a proxy the peer's address is the proxy's. The client's address is in `X-Forwarded-For`, a header that
//! clients can forge. `client_ip` reads the list from the right and returns the first address that is not a trusted
//! proxy's.

use axum::{Router, routing::get};
use tower_dist_ratelimit::key;
use tower_dist_ratelimit::{
    BuildError, Policy, Quota, RateLimitLayer, TrustedProxies, backend::Memory,
};

/// Limits each client behind the load balancers in 10.0.0.0/8.
///
/// Serve the router with `into_make_service_with_connect_info::<SocketAddr>()`: only requests from a trusted proxy may
/// name another client.
pub fn app() -> Result<Router, BuildError> {
    let proxies = TrustedProxies::none().cidr("10.0.0.0/8");
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("client", Quota::per_minute(2)).by(key::client_ip(proxies)))
        // The load balancer's health checks.
        .exempt(|request| request.uri().path() == "/healthz")
        .build()?;
    Ok(Router::new()
        .route("/", get(async || "hello"))
        .route("/healthz", get(async || "ok"))
        .layer(limit))
}

#[cfg(test)]
mod tests {
    use http::{Request, request};

    use super::*;
    use crate::testing::status;

    const PROXY: [u8; 4] = [10, 0, 0, 1];

    fn forwarded(addresses: &str) -> request::Builder {
        Request::get("/").header("x-forwarded-for", addresses)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_invents_addresses_keeps_one_limit() {
        let app = app().unwrap();
        for (invented, expected) in [
            ("198.51.100.1", 200),
            ("198.51.100.2", 200),
            ("198.51.100.3", 429),
        ] {
            // The proxy appends the address that connected to it.
            let request = forwarded(&format!("{invented}, 203.0.113.7"));
            assert_eq!(status(&app, PROXY, request).await, expected);
        }
        assert_eq!(status(&app, PROXY, forwarded("203.0.113.8")).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_no_proxy_cannot_name_another_client() {
        let app = app().unwrap();
        for (invented, expected) in [
            ("198.51.100.1", 200),
            ("198.51.100.2", 200),
            ("198.51.100.3", 429),
        ] {
            assert_eq!(
                status(&app, [203, 0, 113, 9], forwarded(invented)).await,
                expected
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn health_checks_are_not_limited() {
        let app = app().unwrap();
        for _ in 0..10 {
            assert_eq!(status(&app, PROXY, Request::get("/healthz")).await, 200);
        }
    }
}
