//! All three layers in one axum service: a rate limit for its clients, and retries and hedged
//! requests towards the service it calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key::peer_addr};
use tower_hedge_latency::{Hedge, HedgeLayer};
use tower_jitter_retry::{Http, Retry, RetryLayer};

type Outbound = Retry<Hedge<Client<HttpConnector, Empty<Bytes>>, Http>, Http>;

/// The service: `/` forwards the status and the body of `upstream`'s response.
fn app(upstream: Uri) -> Result<Router, BoxError> {
    let retry = RetryLayer::http();
    let hedge = HedgeLayer::builder()
        .http()
        .fixed(Duration::from_millis(50))
        // Retries and hedges share one budget. The retry layer deposits into it.
        .shared_budget(retry.handle().budget())
        .build()?;
    let outbound = ServiceBuilder::new()
        // Retries failed requests after a backoff.
        .layer(retry)
        // Hedges requests that have no response after 50 ms.
        .layer(hedge)
        .service(Client::builder(TokioExecutor::new()).build_http());
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("per-client", Quota::per_second(5).burst(10)).by(peer_addr()))
        .build()?;
    Ok(Router::new()
        .route("/", get(relay))
        .with_state((outbound, upstream))
        // Rejects before the handler runs.
        .layer(limit))
}

async fn relay(State((outbound, upstream)): State<(Outbound, Uri)>) -> Response {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = upstream;
    match outbound.oneshot(request).await {
        Ok(response) => (response.status(), Body::new(response.into_body())).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// An upstream that fails every fourth request, beginning with the first.
async fn unreliable() -> Result<&'static str, StatusCode> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    match CALLS.fetch_add(1, Ordering::Relaxed) % 4 {
        0 => Err(StatusCode::SERVICE_UNAVAILABLE),
        _ => Ok("hello\n"),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let upstream = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("http://{}/", upstream.local_addr()?).parse()?;
    let unreliable = Router::new().route("/", get(unreliable));
    tokio::spawn(axum::serve(upstream, unreliable).into_future());

    let listener = TcpListener::bind("127.0.0.1:3001").await?;
    println!("try: curl -i http://{}/", listener.local_addr()?);
    // The limit's keys are the clients' addresses, which this call provides.
    let app = app(uri)?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
