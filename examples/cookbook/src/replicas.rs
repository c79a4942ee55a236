//! Hedges across replicas, with tower's balancer.
//!
//! The balancer sends a request to the less loaded of two random replicas. The first attempt still counts as load, so
//! its hedge usually goes to another replica. With `PeakEwma` as the load, let the losers end by `drain`: a cancelled
//! attempt looks like a fast response.

use http::uri::{Authority, Parts, Scheme};
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use std::time::Duration;
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::ServiceList;
use tower::load::{CompleteOnResponse, PendingRequests};
use tower::{BoxError, Service, ServiceBuilder};
use tower_hedge_latency::{BuildError, HedgeLayer};

type Body = Empty<bytes::Bytes>;

/// A client of one service with several replicas. A request's URI needs only a path.
///
/// # Panics
///
/// Outside of a tokio runtime: the buffer spawns a task.
pub fn client(
    replicas: impl IntoIterator<Item = Authority>,
) -> Result<
    impl Service<Request<Body>, Response = Response<hyper::body::Incoming>, Error = BoxError> + Clone,
    BuildError,
> {
    let http: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let replicas = replicas.into_iter().map(|authority| {
        let replica = ServiceBuilder::new()
            .map_request(move |request| towards(&authority, request))
            .service(http.clone());
        PendingRequests::new(replica, CompleteOnResponse::default())
    });
    let balancer = Balance::new(ServiceList::new(replicas.collect::<Vec<_>>()));
    let hedge = HedgeLayer::builder()
        .http()
        .percentile(0.95)
        // Until the percentile is learned.
        .initial_delay(Duration::from_millis(100))
        .build()?;
    Ok(ServiceBuilder::new()
        .layer(hedge)
        .service(Buffer::new(balancer, 1_024)))
}

/// Replaces the authority of the request's URI.
fn towards(authority: &Authority, mut request: Request<Body>) -> Request<Body> {
    let mut uri: Parts = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(authority.clone());
    *request.uri_mut() = Uri::from_parts(uri).expect("a URI with a path stays valid");
    request
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use axum::{Router, routing::get};
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    use tower_hedge_latency::{AttemptKind, HedgeInfo};

    use super::*;
    use crate::testing::serve;

    #[tokio::test]
    async fn a_replica_that_stalls_delays_no_response_beyond_the_hedge() {
        let stalled = serve(Router::new().route("/", get(async || pending::<&str>().await))).await;
        let healthy = serve(Router::new().route("/", get(async || "healthy"))).await;
        let replicas = [stalled, healthy].map(|url| url["http://".len()..].parse().unwrap());
        let client = client(replicas).unwrap();
        // The balancer chooses at random. Until a first attempt goes to the stalled replica, no hedge is necessary.
        loop {
            let response = client
                .clone()
                .oneshot(Request::new(Body::new()))
                .await
                .unwrap();
            let hedge = response.extensions().get::<HedgeInfo>().copied();
            let body = response.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes(), "healthy");
            if let Some(hedge) = hedge {
                assert_eq!(hedge.winner.unwrap().kind(), AttemptKind::Hedge);
                break;
            }
        }
    }
}
