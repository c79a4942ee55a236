//! Limits on guessing passwords: only failed logins count.
//!
//! The limit per account protects each account from many addresses. The limit per address slows down an address that
//! tries many accounts. The account's name is in the request's body, so the handler decides on the limit per account
//! with a `Limiter`. A layer decides on the limit per address.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Json, Router, routing::post};
use serde_json::Value;
use tower_dist_ratelimit::key;
use tower_dist_ratelimit::{BuildError, Limiter, Policy, Quota, RateLimitLayer, backend::Memory};

/// Allows a burst of 10 failed logins from one address, and then 10 an hour. On one account, allows at most 5 failed
/// logins in any hour; a successful login clears them.
///
/// Serve the router with `into_make_service_with_connect_info::<SocketAddr>()`.
pub fn app() -> Result<Router, BuildError> {
    let by_address = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("address", Quota::per_hour(10)).by(key::peer_addr()))
        // A login that succeeds costs nothing.
        .refund_when(|response| response.is_some_and(|response| response.status().is_success()))
        .build()?;
    // The log allows at most five attempts in any hour. A bucket would allow five at first and then one every 12
    // minutes.
    let by_account = Policy::new("account", Quota::per_hour(5)).sliding_window_log();
    let by_account = Limiter::new(Memory::default(), by_account)?;
    Ok(Router::new()
        .route("/login", post(login))
        .with_state(by_account)
        .layer(by_address))
}

async fn login(State(limiter): State<Limiter>, Json(form): Json<Value>) -> StatusCode {
    let (Some(name), Some(password)) = (form["name"].as_str(), form["password"].as_str()) else {
        return StatusCode::BAD_REQUEST;
    };
    // Charge first: concurrent guesses cannot all pass the check before one of them is counted.
    match limiter.check(name).await {
        Ok(decision) if decision.allowed => {}
        // Not 401, which would hide the limit from the account's owner.
        Ok(_) => return StatusCode::TOO_MANY_REQUESTS,
        Err(_) => return StatusCode::SERVICE_UNAVAILABLE,
    }
    if password != "correct horse" {
        return StatusCode::UNAUTHORIZED;
    }
    // The login succeeded: the attempts of the account start from zero.
    match limiter.reset(name).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::body::Body;
    use axum::extract::ConnectInfo;
    use http::Request;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    async fn login(app: &Router, host: u8, name: &str, password: &str) -> u16 {
        let body = json!({ "name": name, "password": password }).to_string();
        let request = Request::post("/login")
            .header("content-type", "application/json")
            .extension(ConnectInfo(SocketAddr::from(([192, 0, 2, host], 40_000))))
            .body(Body::from(body))
            .unwrap();
        app.clone()
            .oneshot(request)
            .await
            .unwrap()
            .status()
            .as_u16()
    }

    #[tokio::test(start_paused = true)]
    async fn five_failed_logins_lock_an_account_from_every_address() {
        let app = app().unwrap();
        for host in 1..=5 {
            assert_eq!(login(&app, host, "ada", "guess").await, 401);
        }
        assert_eq!(login(&app, 6, "ada", "correct horse").await, 429);
        assert_eq!(login(&app, 6, "grace", "correct horse").await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_tries_many_accounts_is_rejected() {
        let app = app().unwrap();
        for account in 0..10 {
            assert_eq!(
                login(&app, 1, &format!("user-{account}"), "guess").await,
                401
            );
        }
        assert_eq!(login(&app, 1, "ada", "correct horse").await, 429);
    }

    #[tokio::test(start_paused = true)]
    async fn successful_logins_are_not_limited() {
        let app = app().unwrap();
        for _ in 0..100 {
            assert_eq!(login(&app, 1, "ada", "correct horse").await, 200);
        }
    }
}
