//! Limits per route, per user and per address, in one decision.
//!
//! A request that one policy rejects charges none of the policies. Separate layers would charge the outer limits first.

use axum::{Router, routing::get};
use tower_dist_ratelimit::key::{self, KeyExtractor};
use tower_dist_ratelimit::{BuildError, Policy, Quota, RateLimitLayer, backend::Memory};

/// The authenticated user. An authentication layer outside of the limit inserts it into the request's extensions.
#[derive(Clone, Debug)]
pub struct User {
    /// The number in the database. Unlike a name, it is never reused.
    pub id: u64,
}

/// Limits each address, each user, and each user on the expensive route.
///
/// Serve the router with `into_make_service_with_connect_info::<SocketAddr>()`, which provides the peer's address.
pub fn app() -> Result<Router, BuildError> {
    let user = || key::extension(|user: &User| user.id);
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("address", Quota::per_second(20).burst(40)).by(key::peer_addr()))
        // Requests without a user are counted by their address.
        .limit(Policy::new("user", Quota::per_minute(10)).by(user().or(key::peer_addr())))
        .limit(
            Policy::new("report", Quota::per_minute(2))
                .by((user().or(key::peer_addr()), key::matched_path()))
                .only_if(|request| request.uri().path().starts_with("/reports/")),
        )
        .build()?;
    Ok(Router::new()
        .route("/", get(async || "hello"))
        .route("/reports/{year}", get(async || "report"))
        // `Router::layer` runs after routing, so `matched_path` is known.
        .layer(limit))
}

#[cfg(test)]
mod tests {
    use http::{Request, request};

    use super::*;
    use crate::testing::status;

    const HERE: [u8; 4] = [192, 0, 2, 1];
    const THERE: [u8; 4] = [192, 0, 2, 2];

    fn by(id: u64, path: &str) -> request::Builder {
        Request::get(path).extension(User { id })
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_one_policy_rejects_charges_no_other_policy() {
        let app = app().unwrap();
        for _ in 0..2 {
            assert_eq!(status(&app, HERE, by(1, "/reports/2025")).await, 200);
        }
        // The route's limit rejects these requests.
        for _ in 0..20 {
            assert_eq!(status(&app, HERE, by(1, "/reports/2026")).await, 429);
        }
        // The user has spent 2 of 10 requests.
        for _ in 0..8 {
            assert_eq!(status(&app, HERE, by(1, "/")).await, 200);
        }
        assert_eq!(status(&app, HERE, by(1, "/")).await, 429);
    }

    #[tokio::test(start_paused = true)]
    async fn users_behind_one_address_have_separate_limits() {
        let app = app().unwrap();
        for id in 1..=3 {
            for _ in 0..10 {
                assert_eq!(status(&app, HERE, by(id, "/")).await, 200);
            }
            assert_eq!(status(&app, HERE, by(id, "/")).await, 429);
        }
        assert_eq!(status(&app, THERE, Request::get("/")).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn all_users_behind_one_address_share_its_limit() {
        let app = app().unwrap();
        for id in 1..=40 {
            assert_eq!(status(&app, HERE, by(id, "/")).await, 200);
        }
        assert_eq!(status(&app, HERE, by(41, "/")).await, 429);
        assert_eq!(status(&app, THERE, by(41, "/")).await, 200);
    }
}
