//! The least work of a gateway with a rate limit, retries and hedged requests: the proxy of `examples/gateway` between
//! the floor of a limit and the floor of the outbound layers.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use gateway::{Proxy, Server, client};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Layer, Service, service_fn};

use crate::limit::{Floor, KEYS, http_floor};

/// The timeout of an attempt, as in the gateway.
const ATTEMPT: Duration = Duration::from_millis(500);

/// The step of the learned delay, in nanoseconds.
const STEP: u64 = 200;

/// Serves as a proxy of the port `upstream` until the process ends.
///
/// # Errors
///
/// Returns an error if the port is not free.
pub(crate) fn serve(port: u16, upstream: u16) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let upstream = format!("127.0.0.1:{upstream}").parse()?;
        let outbound = outbound(TimeoutLayer::new(ATTEMPT).layer(client()));
        let proxy = Proxy::service(upstream, outbound)?;
        let app = http_floor(Floor::plenty(KEYS), true, proxy);
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = Server::start(addr, Router::new().fallback_service(app)).await;
        let _server = server.map_err(|error| error.to_string())?;
        std::future::pending::<()>().await;
        Ok(())
    })
}

type Response = http::Response<Incoming>;

/// What retries and hedges need of a request that succeeds: a copy of it, two reads of the clock, and a timer until the
/// 95th percentile of the latency. If the response is later, sends the copy, too, and returns the first response.
fn outbound<S>(
    client: S,
) -> impl Service<Request, Response = Response, Error = BoxError, Future: Send> + Clone + Send + Sync
where
    S: Service<Request, Response = Response, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let delay = Arc::new(AtomicU64::new(0));
    service_fn(move |request: Request| {
        let (mut client, delay) = (client.clone(), Arc::clone(&delay));
        let copy = copy(&request);
        let start = Instant::now();
        let call = client.call(request);
        async move {
            let mut call = std::pin::pin!(call);
            let due = start + Duration::from_nanos(delay.load(Relaxed));
            let outcome = match timeout_at(due, &mut call).await {
                Ok(outcome) => outcome,
                Err(_) => tokio::select! {
                    biased;
                    outcome = &mut call => outcome,
                    outcome = client.call(copy) => outcome,
                },
            };
            learn(&delay, start.elapsed());
            outcome
        }
    })
}

/// The load generator sends no bodies.
fn copy(request: &Request) -> Request {
    let mut copy = Request::new(Body::empty());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy
}

/// Moves the delay toward the 95th percentile: up by 19 steps after one of 20 responses, and down by one step after the
/// others. A concurrent change can be lost.
fn learn(delay: &AtomicU64, latency: Duration) {
    let last = delay.load(Relaxed);
    let is_later = latency > Duration::from_nanos(last);
    let next = match is_later {
        true => last.saturating_add(19 * STEP),
        false => last.saturating_sub(STEP),
    };
    delay.store(next, Relaxed);
}
