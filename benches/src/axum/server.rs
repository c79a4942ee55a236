use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::Route, routing::get};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE, header::RETRY_AFTER};
use tower::layer::layer_fn;
use tower::util::{MapResponseLayer, service_fn};
use tower::{Layer, Service};
use tower_dist_ratelimit::{Quota, backend::Memory};

use crate::limit::{
    Floor, KEYS, PROBLEM, RATELIMIT, RATELIMIT_POLICY, by_header, http_floor, plenty,
    tower_governor, tower_governor_refusing, tower_governor_with_fields, with_processor_clock,
    without_fields_in,
};

// Paths of the same length, because hyper and axum read them byte by byte.
pub(super) const BARE: &str = "/0";
pub(super) const OURS: &str = "/1";
pub(super) const OURS_WITH_FIELDS: &str = "/2";
pub(super) const OURS_REJECTING: &str = "/3";
pub(super) const FIELDS: &str = "/4";
pub(super) const REJECTION: &str = "/5";
pub(super) const GOVERNOR: &str = "/6";
pub(super) const GOVERNOR_WITH_FIELDS: &str = "/7";
pub(super) const GOVERNOR_REJECTING: &str = "/8";
pub(super) const FLOOR: &str = "/9";
pub(super) const FLOOR_WITH_FIELDS: &str = "/a";
pub(super) const FLOOR_REJECTING: &str = "/b";
pub(super) const PROCESSOR_CLOCK: &str = "/c";

/// Serves on one thread.
///
/// # Errors
///
/// Returns an error if the port is not free.
pub(crate) fn serve(port: u16) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        axum::serve(listener, routes()).await
    })
}

/// A route per subject.
fn routes() -> Router {
    let hello = || get(async || "Hello, World!");
    let ours = without_fields_in(Memory::default());
    let ours_with_fields = by_header(plenty()).build().expect("valid");
    let ours_rejecting = by_header(Quota::per_hour(1)).build().expect("valid");
    Router::new()
        .route(BARE, hello())
        .route(OURS, hello().layer(ours))
        .route(PROCESSOR_CLOCK, hello().layer(with_processor_clock()))
        .route(OURS_WITH_FIELDS, hello().layer(ours_with_fields))
        .route(OURS_REJECTING, hello().layer(ours_rejecting))
        .route(FIELDS, hello().layer(MapResponseLayer::new(put_fields)))
        .route(
            REJECTION,
            hello().layer(layer_fn(|_: Route| service_fn(reject))),
        )
        .route(FLOOR, hello().layer(floors(Floor::plenty, false)))
        .route(
            FLOOR_WITH_FIELDS,
            hello().layer(floors(Floor::plenty, true)),
        )
        .route(
            FLOOR_REJECTING,
            hello().layer(floors(Floor::one_per_hour, true)),
        )
        .route(GOVERNOR, hello().layer(tower_governor()))
        .route(
            GOVERNOR_WITH_FIELDS,
            hello().layer(tower_governor_with_fields()),
        )
        .route(GOVERNOR_REJECTING, hello().layer(tower_governor_refusing()))
}

fn floors(
    limiter: fn(u32) -> Floor,
    with_fields: bool,
) -> impl Layer<
    Route,
    Service: Service<Request, Response = Response, Error = Infallible, Future: Send>
                 + Clone
                 + Send
                 + Sync,
> + Clone {
    layer_fn(move |route: Route| http_floor(limiter(KEYS), with_fields, route))
}

/// Sets the fields that our layer sends with an admitted request, as constants.
fn put_fields(mut response: Response) -> Response {
    const POLICY: HeaderValue = HeaderValue::from_static(r#""per-client";q=1000000000;w=1"#);
    const STATE: HeaderValue = HeaderValue::from_static(r#""per-client";r=999999999;t=1"#);
    let fields = response.headers_mut();
    fields.append(RATELIMIT_POLICY, POLICY);
    fields.append(RATELIMIT, STATE);
    response
}

/// Sends the response that our layer sends to a rejected request, as a constant.
async fn reject(_: Request) -> Result<Response, Infallible> {
    let fields = [
        (CONTENT_TYPE, "application/problem+json"),
        (RETRY_AFTER, "3600"),
        (RATELIMIT_POLICY, r#""per-client";q=1;w=3600"#),
        (RATELIMIT, r#""per-client";r=0;t=3600"#),
    ];
    Ok((StatusCode::TOO_MANY_REQUESTS, fields, PROBLEM).into_response())
}
