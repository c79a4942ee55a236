//! Users' stacks compile without type annotations.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer};
use tower_hedge_latency::{Grpc, Hedge, HedgeLayer};
use tower_jitter_retry::{
    Budget, Budgets, Generic, Http, NoObserver, Retry, RetryLayer, StandardAnswer, Verdict,
};

const SECOND: Duration = Duration::from_secs(1);

fn retry() -> RetryLayer<Http> {
    RetryLayer::http()
}

fn hedge() -> HedgeLayer<Http> {
    HedgeLayer::builder().fixed(SECOND).http().build().unwrap()
}

fn limit() -> RateLimitLayer {
    let policy = Policy::new("all", Quota::per_second(10));
    let builder = RateLimitLayer::builder(Memory::default());
    builder.limit(policy).build().unwrap()
}

fn plain_retry() -> RetryLayer {
    RetryLayer::builder().build().unwrap()
}

fn plain_hedge() -> HedgeLayer {
    HedgeLayer::builder().fixed(SECOND).build().unwrap()
}

/// Checks the bounds that servers and clients place on a service: it is shared by threads, and its future is `Send`.
fn usable<S, Req>(service: S) -> S
where
    S: Service<Req, Future: Send> + Clone + Send + Sync + 'static,
{
    service
}

fn hyper_client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

type HyperRequest = http::Request<Full<Bytes>>;

#[tokio::test]
async fn the_layers_accept_an_axum_router() {
    let _: Router = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(retry())
        .layer(hedge())
        .layer(ServiceBuilder::new().layer(retry()).layer(hedge()))
        .route_layer(hedge())
        .layer(limit())
        .route_layer(limit());
}

#[tokio::test]
async fn the_layers_accept_an_axum_router_as_a_service() {
    let router: Router = Router::new().route("/", get(|| async { "hello" }));
    let router = retry().layer(hedge().layer(router));
    usable::<_, http::Request<axum::body::Body>>(limit().layer(router));
}

#[tokio::test]
async fn the_layers_accept_an_axum_router_under_a_box_error() {
    let router: Router = Router::new().route("/", get(|| async { "hello" }));
    let service = ServiceBuilder::new()
        .layer(limit())
        .layer(retry())
        .layer(hedge())
        .layer(TimeoutLayer::new(SECOND))
        .service(router);
    let mut service = usable::<_, http::Request<axum::body::Body>>(service);
    let request = http::Request::new(axum::body::Body::empty());
    let response: Result<_, BoxError> = tower::ServiceExt::oneshot(&mut service, request).await;
    assert_eq!(response.unwrap().status(), http::StatusCode::OK);
}

#[tokio::test]
async fn the_layers_accept_a_hyper_service_behind_a_limit() {
    let service = service_fn(|_: http::Request<hyper::body::Incoming>| async {
        Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
    });
    let service = usable::<_, http::Request<hyper::body::Incoming>>(limit().layer(service));
    let _ = hyper_util::service::TowerToHyperService::new(service);
}

#[tokio::test]
async fn the_layers_accept_a_hyper_util_client() {
    usable::<_, HyperRequest>(retry().layer(hedge().layer(hyper_client())));
    usable::<_, HyperRequest>(hedge().layer(retry().layer(hyper_client())));
}

#[tokio::test]
async fn the_layers_accept_a_hyper_util_client_under_a_box_error() {
    let service = ServiceBuilder::new()
        .layer(retry())
        .layer(hedge())
        .layer(TimeoutLayer::new(SECOND))
        .service(hyper_client());
    let mut service = usable::<_, HyperRequest>(service);
    // The error type is the inner service's.
    let error = async {
        let request = http::Request::new(Full::default());
        tower::ServiceExt::oneshot(&mut service, request).await
    };
    let _: Result<http::Response<hyper::body::Incoming>, BoxError> = error.await;
}

#[tokio::test]
async fn the_layers_accept_a_hyper_util_client_with_any_known_body() {
    type Boxed = http_body_util::combinators::BoxBody<Bytes, Infallible>;
    type Unsync = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;
    type Empty = http_body_util::Empty<Bytes>;

    macro_rules! with_body {
        ($($body:ty),* $(,)?) => {$(
            let client: Client<_, $body> = Client::builder(TokioExecutor::new()).build_http();
            usable::<_, http::Request<$body>>(retry().layer(hedge().layer(client)));
        )*};
    }
    with_body!(
        Empty,
        Boxed,
        Unsync,
        axum::body::Body,
        tonic::body::Body,
        reqwest::Body
    );
}

#[tokio::test]
async fn the_layers_accept_a_tonic_channel() {
    let channel = || tonic::transport::Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
    let stack = retry().layer(hedge().layer(channel()));
    usable::<_, http::Request<tonic::body::Body>>(stack.clone());
    let _ = tonic::client::Grpc::new(stack);

    let boxed = ServiceBuilder::new()
        .layer(hedge())
        .layer(retry())
        .layer(TimeoutLayer::new(SECOND))
        .service(channel());
    let _ = tonic::client::Grpc::new(usable::<_, http::Request<tonic::body::Body>>(boxed));
}

#[tokio::test]
async fn the_layers_accept_a_tonic_server() {
    let routes = || tonic::service::Routes::from(Router::new());
    let _ = tonic::transport::Server::builder()
        .layer(retry())
        .layer(hedge())
        .add_routes(routes());
    // The error type is `BoxError`.
    let _ = tonic::transport::Server::builder()
        .layer(retry())
        .layer(hedge())
        .layer(TimeoutLayer::new(SECOND))
        .add_routes(routes())
        .serve_with_shutdown(([127, 0, 0, 1], 0).into(), std::future::ready(()))
        .await;
}

#[tokio::test]
async fn the_layers_accept_a_reqwest_client() {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    usable::<_, reqwest::Request>(retry().layer(hedge().layer(client.clone())));
    usable::<_, reqwest::Request>(hedge().layer(retry().layer(client.clone())));
    let boxed = ServiceBuilder::new()
        .layer(retry())
        .layer(hedge())
        .layer(TimeoutLayer::new(SECOND))
        .service(client);
    usable::<_, reqwest::Request>(boxed);
}

#[tokio::test]
async fn the_layers_accept_service_fns_in_both_orders() {
    let service = service_fn(|request: u64| async move { Ok::<_, Infallible>(request) });
    usable::<_, u64>(plain_retry().layer(plain_hedge().layer(service)));
    usable::<_, u64>(plain_hedge().layer(plain_retry().layer(service)));
    let service =
        service_fn(|request: String| async move { Err::<(), _>(BoxError::from(request)) });
    usable::<_, String>(plain_retry().layer(plain_hedge().layer(service)));
}

#[tokio::test]
async fn the_layers_accept_towers_own_layers_above_and_below() {
    let service = service_fn(|request: u64| async move { Ok::<_, BoxError>(request) });
    macro_rules! around {
        ($($layer:expr),* $(,)?) => {$(
            usable::<_, u64>(
                ServiceBuilder::new()
                    .layer($layer)
                    .layer(plain_retry())
                    .layer(plain_hedge())
                    .layer($layer)
                    .service(service),
            );
        )*};
    }
    around!(
        LoadShedLayer::new(),
        TimeoutLayer::new(SECOND),
        ConcurrencyLimitLayer::new(1),
        BufferLayer::new(1),
    );
}

/// Calls a service in a spawned task, as servers and clients do.
///
/// The compiler checks the task's future more strictly than a plain call: it must be `Send` for every lifetime in the
/// service's type.
macro_rules! spawned {
    ($service:expr, $request:expr => $type:ty) => {{
        let (mut service, request): (_, $type) = ($service, $request);
        tokio::spawn(async move {
            ServiceExt::<$type>::ready(&mut service)
                .await?
                .call(request)
                .await
        })
    }};
}

/// Calls a service in a task under each combination of layers.
macro_rules! spawned_in_every_nesting {
    ($service:expr, $request:expr => $type:ty, [$($layer:expr),* $(,)?]) => {{
        $(
            drop(spawned!($layer.layer($service), $request => $type));
            drop(spawned!(retry().layer($layer.layer($service)), $request => $type));
            drop(spawned!(hedge().layer($layer.layer($service)), $request => $type));
            drop(spawned!($layer.layer(retry().layer($service)), $request => $type));
            drop(spawned!($layer.layer(hedge().layer($service)), $request => $type));
            drop(spawned!(hedge().layer(retry().layer($layer.layer($service))), $request => $type));
        )*
    }};
}

/// A layer with hard time limits, which creates outcomes of the inner service's type.
fn limited() -> RetryLayer<Http, NoObserver, StandardAnswer> {
    let builder = RetryLayer::builder().http().attempt_timeout(SECOND);
    builder.deadline(SECOND).build().unwrap()
}

type AxumRequest = http::Request<axum::body::Body>;
type TonicRequest = http::Request<tonic::body::Body>;

fn hyper_request() -> HyperRequest {
    http::Request::new(Full::default())
}

#[tokio::test]
async fn the_layers_accept_spawned_calls_over_a_boxed_error() {
    let echo = service_fn(|_: HyperRequest| async {
        Ok::<_, BoxError>(http::Response::new(Full::<Bytes>::default()))
    });
    let answer = spawned!(retry().layer(hedge().layer(echo)), hyper_request() => HyperRequest);
    assert_eq!(
        answer.await.unwrap().unwrap().status(),
        http::StatusCode::OK
    );
    let answer = spawned!(limited().layer(hedge().layer(echo)), hyper_request() => HyperRequest);
    assert_eq!(
        answer.await.unwrap().unwrap().status(),
        http::StatusCode::OK
    );
    spawned_in_every_nesting!(echo, hyper_request() => HyperRequest, [retry(), hedge(), limited()]);
    let boxed = BoxCloneService::new(echo);
    spawned_in_every_nesting!(boxed.clone(), hyper_request() => HyperRequest, [retry(), hedge(), limited()]);
    let client = || hyper_client().map_err(BoxError::from);
    spawned_in_every_nesting!(client(), hyper_request() => HyperRequest, [retry(), hedge(), limited()]);
    let documented = ServiceBuilder::new().layer(retry()).map_err(BoxError::from);
    drop(spawned!(documented.service(hyper_client()), hyper_request() => HyperRequest));
    let documented = ServiceBuilder::new()
        .layer(limited())
        .map_err(BoxError::from);
    drop(spawned!(documented.service(hyper_client()), hyper_request() => HyperRequest));
}

#[tokio::test]
async fn the_layers_accept_spawned_calls_over_the_clients_own_error() {
    spawned_in_every_nesting!(hyper_client(), hyper_request() => HyperRequest, [retry(), hedge()]);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = || client.get("http://127.0.0.1:1/").build().unwrap();
    spawned_in_every_nesting!(client.clone(), request() => reqwest::Request, [retry(), hedge(), limited()]);
    let channel = || tonic::transport::Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
    let request = || http::Request::new(tonic::body::Body::empty());
    spawned_in_every_nesting!(channel(), request() => TonicRequest, [retry(), hedge()]);
    let grpc = || {
        RetryLayer::builder()
            .grpc()
            .deadline(SECOND)
            .build()
            .unwrap()
    };
    drop(spawned!(RetryLayer::grpc().layer(channel()), request() => TonicRequest));
    drop(spawned!(grpc().layer(hedge().layer(channel())), request() => TonicRequest));
    let boxed = || channel().map_err(BoxError::from);
    drop(spawned!(grpc().layer(hedge().layer(boxed())), request() => TonicRequest));
    spawned_in_every_nesting!(boxed(), request() => TonicRequest, [retry(), hedge(), limited()]);
}

#[tokio::test]
async fn the_layers_accept_spawned_calls_of_services_that_cannot_fail() {
    let router = || Router::<()>::new().route("/", get(|| async { "hello" }));
    let request = || http::Request::new(axum::body::Body::empty());
    let answer = spawned!(limited().layer(hedge().layer(router())), request() => AxumRequest);
    let Ok(response) = answer.await.unwrap();
    assert_eq!(response.status(), http::StatusCode::OK);
    spawned_in_every_nesting!(router(), request() => AxumRequest, [retry(), hedge(), limited()]);
    let timed = || TimeoutLayer::new(SECOND).layer(router());
    spawned_in_every_nesting!(timed(), request() => AxumRequest, [retry(), hedge(), limited()]);
}

#[tokio::test]
async fn the_layers_accept_spawned_calls_over_any_service() {
    macro_rules! in_both_orders {
        ($($service:expr),* $(,)?) => {$(
            drop(spawned!(plain_retry().layer(plain_hedge().layer($service)), 1 => u64));
            drop(spawned!(plain_hedge().layer(plain_retry().layer($service)), 1 => u64));
            drop(spawned!(plain_retry().layer(plain_retry().layer($service)), 1 => u64));
        )*};
    }
    let boxed = service_fn(|request: u64| async move { Ok::<_, BoxError>(request) });
    in_both_orders!(
        service_fn(|request: u64| async move { Ok::<_, Infallible>(request) }),
        service_fn(|request: u64| async move { Ok::<_, std::io::Error>(request) }),
        boxed,
        BoxCloneService::new(boxed),
    );
    let limited = || RetryLayer::builder().deadline(SECOND).build().unwrap();
    let answer = spawned!(limited().layer(plain_hedge().layer(boxed)), 1 => u64);
    assert_eq!(answer.await.unwrap().unwrap(), 1);
    macro_rules! around {
        ($($layer:expr),* $(,)?) => {$(
            let service = || plain_retry().layer(plain_hedge().layer($layer.layer(boxed)));
            drop(spawned!(service(), 1 => u64));
            drop(spawned!(limited().layer(service()), 1 => u64));
            drop(spawned!($layer.layer(service()), 1 => u64));
        )*};
    }
    around!(
        LoadShedLayer::new(),
        TimeoutLayer::new(SECOND),
        ConcurrencyLimitLayer::new(1),
        BufferLayer::new(1),
    );
}

/// After the protocol, setters come in any order, and no closure needs a type annotation.
#[test]
fn rules_of_every_kind_need_no_annotations() {
    let layer: RetryLayer<Http> = RetryLayer::builder()
        .http()
        .budget_by(Budgets::new(Budget::default()), |request| {
            request.authority()
        })
        .idempotent_if(|request| request.path() == "/search")
        .retry_statuses([StatusCode::LOCKED])
        .classify(|outcome| match outcome.status() {
            Some(StatusCode::NOT_FOUND) if outcome.attempt().number() == 1 => Verdict::transient(),
            _ => outcome.verdict(),
        })
        .backoff_by(|retry, outcome| {
            (outcome.status() == Some(StatusCode::CONFLICT))
                .then(|| retry * Duration::from_millis(10))
        })
        .generate_idempotency_key(|| http::HeaderValue::from_static("key"))
        .max_attempts(4)
        .build()
        .unwrap();
    let _: Retry<(), Http> = layer.layer(());
    let layer: RetryLayer<Grpc> = RetryLayer::builder()
        .grpc()
        .backoff_by(|retry, outcome| outcome.code().map(|_| retry * SECOND))
        .classify(|outcome| outcome.verdict())
        .budget_by(Budgets::new(Budget::default()), |request| {
            request.headers().get("x-tenant")?.to_str().ok()
        })
        .idempotent_if(|call| call.path().starts_with("/catalog.Reader/"))
        .idempotent_methods(["/helloworld.Greeter/SayHello"])
        .build()
        .unwrap();
    let _: Retry<(), Grpc> = layer.layer(());
    let layer: HedgeLayer<Http> = HedgeLayer::builder()
        .http()
        .hedge_if(|request| request.path() != "/report")
        .hedge_unsafe_if(|request| request.path() == "/search")
        .classify(|outcome| outcome.verdict())
        .shared_budget(Budget::default())
        .percentile(0.95)
        .build()
        .unwrap();
    let _: Hedge<(), Http> = layer.layer(());
    let builder = RetryLayer::builder();
    let busy = |outcome: &Result<u64, std::io::Error>| outcome.is_err();
    usable::<_, u64>(builder.retry_if(busy).build().unwrap().layer(service_fn(
        |request: u64| async move { Ok::<_, std::io::Error>(request) },
    )));
}

/// The type of a service can be written down.
#[expect(dead_code, reason = "it only has to compile")]
struct Named {
    http: Retry<Hedge<Client<HttpConnector, Full<Bytes>>, Http>, Http>,
    plain: Retry<Hedge<Client<HttpConnector, Full<Bytes>>>>,
    also_plain: Retry<(), Generic>,
}

#[test]
fn layers_are_shared_by_threads() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    shared(&retry());
    shared(&hedge());
    shared(&retry().handle());
    shared(&hedge().handle());
    shared(&limit());
    shared(&Budget::default());
}
