//! Rate limits in front of real servers, read by real clients.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod costs;
#[path = "../sockets/greeter.rs"]
mod greeter;
mod grpc;
mod http;
mod layers;
mod leaving;
mod retry;
mod settle;
mod stacks;
mod wire;

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer};

/// Serves a router on a free port until the test's runtime ends.
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    url
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// `burst` requests, and no further request for a minute.
fn few(burst: u64) -> Quota {
    Quota::per_minute(1).burst(burst)
}

fn layer(policy: Policy) -> RateLimitLayer {
    let builder = RateLimitLayer::builder(Memory::default());
    builder.limit(policy).build().unwrap()
}
