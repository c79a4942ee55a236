//! A quota for each plan, looked up in a database.
//!
//! Every request with a key looks up its quota, so a change of a plan takes effect with the next request. Keep the
//! plans in a cache: the look-up delays each request.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use axum::{Router, routing::get};
use tower_dist_ratelimit::{
    BuildError, MissingKey, Policy, Quota, RateLimitLayer, backend::Memory, key,
};

/// The plans of the customers, by API key. A real service queries its database when the cache has no fresh entry.
#[derive(Clone, Debug, Default)]
pub struct Plans(Arc<RwLock<HashMap<String, Quota>>>);

impl Plans {
    /// Gives the customer with this API key a quota.
    pub fn set(&self, api_key: &str, quota: Quota) {
        self.0
            .write()
            .expect("no writer panics")
            .insert(api_key.to_owned(), quota);
    }

    async fn quota(self, api_key: String) -> Option<Quota> {
        self.0
            .read()
            .expect("no writer panics")
            .get(&api_key)
            .copied()
    }
}

/// Limits each API key by its plan, and each unknown key by the free plan of 2 requests a minute.
pub fn app(plans: Plans) -> Result<Router, BuildError> {
    let policy = Policy::new("plan", Quota::per_minute(2))
        .by(key::header("x-api-key"))
        .missing_key(MissingKey::Reject)
        .quota_by_async(move |request| {
            let api_key = request
                .headers()
                .get("x-api-key")
                .and_then(|value| value.to_str().ok());
            plans.clone().quota(api_key.unwrap_or_default().to_owned())
        });
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(policy)
        .build()?;
    Ok(Router::new().route("/", get(async || "hello")).layer(limit))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::testing::status;

    async fn allowed(app: &Router, api_key: &str) -> usize {
        let mut allowed = 0;
        for _ in 0..100 {
            let request = Request::get("/").header("x-api-key", api_key);
            allowed += usize::from(status(app, [127, 0, 0, 1], request).await == 200);
        }
        allowed
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_has_the_limit_of_its_plan() {
        let plans = Plans::default();
        plans.set("gold", Quota::per_minute(50));
        let app = app(plans).unwrap();
        assert_eq!(allowed(&app, "gold").await, 50);
        assert_eq!(allowed(&app, "unknown").await, 2);
        assert_eq!(status(&app, [127, 0, 0, 1], Request::get("/")).await, 400);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_plan_holds_from_the_next_request_and_spent_requests_stay_spent() {
        let plans = Plans::default();
        plans.set("ada", Quota::per_minute(10));
        let app = app(plans.clone()).unwrap();
        assert_eq!(allowed(&app, "ada").await, 10);
        plans.set("ada", Quota::per_minute(30));
        assert_eq!(allowed(&app, "ada").await, 20);
    }
}
