//! The configuration of both layers: as in the first example, over real sockets, and with every type written down.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::util::{MapErr, ServiceFn};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_hedge_latency::{
    Alternates, Anywhere, Attempt, ByKey, Chosen, Drain, Hedge, HedgeLayer, Spread, UsedEndpoints,
};
use tower_jitter_retry::{
    Backoff, Budget, Budgets, ClassifyFn, Elapsed, EveryError, Generic, Grpc, Http, Jitter,
    NoObserver, Observed, Observer, OnTimeout, Retry, RetryIf, RetryLayer, StandardAnswer, Verdict,
};

type HttpRequest = Request<Full<Bytes>>;
type HttpClient = Client<HttpConnector, Full<Bytes>>;

fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

/// A request as the server received it.
struct Seen {
    method: Method,
    path: String,
    key: Option<HeaderValue>,
}

type Log = Arc<Mutex<Vec<Seen>>>;

/// Answers the n-th request for a path with the n-th status in it, such as `/503/200`. Then the last one counts. Never
/// answers a status of 0, and `/report` after half a second.
async fn server() -> (String, Log) {
    async fn answer(
        State(log): State<Log>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
    ) -> StatusCode {
        let path = uri.path().to_owned();
        let number = {
            let mut log = log.lock().unwrap();
            let key = headers.get("idempotency-key").cloned();
            let number = log.iter().filter(|seen| seen.path == path).count();
            log.push(Seen {
                method,
                path: path.clone(),
                key,
            });
            number
        };
        let statuses: Vec<u16> = path
            .split('/')
            .filter_map(|part| part.parse().ok())
            .collect();
        let status = statuses
            .get(number)
            .or(statuses.last())
            .copied()
            .unwrap_or(200);
        if path == "/report" {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        match status {
            0 => std::future::pending().await,
            status => StatusCode::from_u16(status).unwrap(),
        }
    }
    let log = Log::default();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&log));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, log)
}

fn request(method: Method, url: &str) -> HttpRequest {
    let request = Request::builder().method(method).uri(url);
    request.body(Full::new(Bytes::from("body"))).unwrap()
}

fn random_uuid() -> HeaderValue {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    HeaderValue::from(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

#[tokio::test]
async fn every_rule_of_the_first_retry_example_has_its_documented_effect() {
    let retry: RetryLayer<Http> = RetryLayer::builder()
        .http()
        .name("payments")
        .budget_by(Budgets::new(Budget::default()), |request| {
            request.authority()
        })
        .idempotent_if(|request| request.path() == "/search/503/200")
        .retry_statuses([StatusCode::LOCKED])
        .classify(|outcome| match outcome.status() {
            Some(StatusCode::NOT_FOUND) if outcome.attempt().number() == 1 => Verdict::transient(),
            _ => outcome.verdict(),
        })
        .backoff_by(|retry, outcome| {
            (outcome.status() != Some(StatusCode::CONFLICT))
                .then(|| retry * Duration::from_millis(1))
        })
        .max_attempts(4)
        .build()
        .unwrap();
    let (url, log) = server().await;
    let handle = retry.handle();
    let service = retry.layer(client());
    let (get, post) = (Method::GET, Method::POST);
    for (method, path, status, requests) in [
        (&post, "/search/503/200", 200, 2),
        (&post, "/order/503/200", 503, 1),
        (&get, "/423/200", 200, 2),
        (&get, "/404/200", 200, 2),
        (&get, "/404/404/200", 404, 2),
        (&post, "/404/200", 404, 1),
        (&get, "/409/200", 409, 1),
        (&get, "/503", 503, 4),
    ] {
        log.lock().unwrap().clear();
        let call = service
            .clone()
            .oneshot(request(method.clone(), &format!("{url}{path}")));
        assert_eq!(
            call.await.unwrap().status().as_u16(),
            status,
            "{method} {path}"
        );
        let seen = log.lock().unwrap();
        assert!(seen.iter().all(|seen| seen.method == method));
        assert_eq!(seen.len(), requests, "{method} {path}");
    }
    let counts = handle.counts();
    // A 404 counts as a success once its rule is used up.
    assert_eq!((counts.retries, counts.recovered), (7, 4));
    // The retries used the budget of the server's authority. The budget of requests without an authority is full.
    assert_eq!(handle.budget().available(), 100);
}

#[tokio::test]
async fn a_generated_key_makes_a_post_retryable_and_stays_the_same() {
    let retry = RetryLayer::builder().http().backoff(Backoff::none());
    let retry = retry.generate_idempotency_key(random_uuid).build().unwrap();
    let (url, log) = server().await;
    let order = request(Method::POST, &format!("{url}/503/200"));
    let response = retry.layer(client()).oneshot(order).await.unwrap();
    assert_eq!(response.status(), 200);
    let seen = log.lock().unwrap();
    assert!(seen.len() == 2 && seen[0].key.is_some() && seen[0].key == seen[1].key);
}

#[tokio::test]
async fn every_rule_of_the_first_hedge_example_has_its_documented_effect() {
    let budget = Budget::default();
    let hedge: HedgeLayer<Http> = HedgeLayer::builder()
        .http()
        .name("payments")
        .shared_budget(budget.clone())
        .hedge_if(|request| request.path() != "/report")
        .percentile(0.95)
        .build()
        .unwrap();
    let (url, log) = server().await;
    let handle = hedge.handle();
    let service = hedge.layer(client());
    let call = async |method, path| {
        let request = request(method, &format!("{url}{path}"));
        service.clone().oneshot(request).await.unwrap().status()
    };
    while handle.delay().is_none() {
        assert_eq!(call(Method::GET, "/page").await, 200);
    }
    log.lock().unwrap().clear();
    let before = handle.counts();
    // The hedge answers.
    assert_eq!(call(Method::GET, "/0/200").await, 200);
    assert_eq!(handle.counts().hedges, before.hedges + 1);
    assert!(
        handle.budget().available() < 100 || budget.available() == 100,
        "one per second comes back"
    );
    // Neither is hedged, however late.
    log.lock().unwrap().clear();
    assert_eq!(call(Method::GET, "/report").await, 200);
    assert_eq!(call(Method::POST, "/report").await, 200);
    assert_eq!(log.lock().unwrap().len(), 2);
    assert_eq!(handle.counts().hedges, before.hedges + 1);
}

/// A rule, a budget, a name: none of them changes a type.
struct Clients {
    payments: Retry<Hedge<HttpClient, Http>, Http>,
    calls: Retry<Hedge<HttpClient, Grpc>, Grpc>,
}

#[tokio::test]
async fn clients_with_every_rule_can_be_named() {
    let retry = RetryLayer::builder()
        .http()
        .name("payments")
        .mode(tower_jitter_retry::Mode::On)
        .budget_by(Budgets::new(Budget::default()), |request| {
            request.authority()
        })
        .max_attempts(2)
        .backoff(Backoff::constant(Duration::from_millis(1)).jitter(Jitter::Full))
        .max_retry_after(Duration::from_secs(1))
        .retry_until(Duration::from_secs(1))
        .replay_limit(1024)
        .idempotent_if(|request| request.path() == "/search")
        .retry_statuses([StatusCode::LOCKED])
        .classify(|outcome| outcome.verdict())
        .backoff_by(|_, _| None)
        .generate_idempotency_key(random_uuid)
        .retry_429_for_idempotent_only()
        .without_redirects()
        .build()
        .unwrap();
    let hedge = HedgeLayer::builder()
        .http()
        .name("payments")
        .mode(tower_hedge_latency::Mode::On)
        .shared_budget_by(Budgets::new(Budget::default()), |request| {
            request.authority()
        })
        .key(|request| Some(request.path()))
        .percentile(0.9)
        .max_hedges(2)
        .min_delay(Duration::from_millis(1))
        .max_delay(Duration::from_secs(1))
        .initial_delay(Duration::from_millis(50))
        .window(Duration::from_secs(1))
        .hedge_on_failure(true)
        .replay_limit(1024)
        .retry_statuses([StatusCode::LOCKED])
        .classify(|outcome| outcome.verdict())
        .generate_idempotency_key(random_uuid)
        .hedge_if(|request| request.path() != "/report")
        .hedge_unsafe_if(|request| request.path() == "/search")
        .build()
        .unwrap();
    let methods = ["/helloworld.Greeter/SayHello"];
    let retry_calls = RetryLayer::builder().grpc().idempotent_methods(methods);
    let hedge_calls = HedgeLayer::builder()
        .grpc()
        .idempotent_methods(methods)
        .idempotent_if(|call| call.path().starts_with("/catalog."))
        .key(|call| Some(call.path()));
    let clients = Clients {
        payments: retry.layer(hedge.layer(client())),
        calls: retry_calls
            .build()
            .unwrap()
            .layer(hedge_calls.build().unwrap().layer(client())),
    };
    let (url, _) = server().await;
    let get = || request(Method::GET, &format!("{url}/503/200"));
    assert_eq!(clients.payments.oneshot(get()).await.unwrap().status(), 200);
    assert_eq!(clients.calls.oneshot(get()).await.unwrap().status(), 200);
}

#[derive(Clone)]
struct Silent;

impl Observer for Silent {}

type BoxedErrors = MapErr<HttpClient, fn(Error) -> BoxError>;
type Answer = Result<http::Response<hyper::body::Incoming>, BoxError>;

type OnLate = fn(Elapsed) -> Answer;
type Choose = fn(Attempt, &UsedEndpoints) -> HttpClient;

/// Each option that adds a type, by the name of that type.
struct Named {
    observed: Retry<Hedge<HttpClient, Http, Observed>, Http, Observed>,
    limited: Retry<BoxedErrors, Http, NoObserver, StandardAnswer>,
    answered: Retry<BoxedErrors, Http, NoObserver, OnTimeout<OnLate>>,
    alternates: Hedge<HttpClient, Http, NoObserver, Alternates<HttpClient>>,
    chosen: Hedge<HttpClient, Http, NoObserver, Chosen<Choose>>,
    spread: Hedge<HttpClient, Http, NoObserver, Spread>,
    drained: Hedge<HttpClient, Http, NoObserver, Anywhere, Drain>,
    everything: Hedge<HttpClient, Http, Observed, Alternates<HttpClient>, Drain>,
}

#[tokio::test]
async fn every_type_that_an_option_adds_can_be_named() {
    fn late(elapsed: Elapsed) -> Answer {
        Err(elapsed.into())
    }
    fn other(_: Attempt, _: &UsedEndpoints) -> HttpClient {
        client()
    }
    let second = Duration::from_secs(1);
    let retry = || RetryLayer::builder().http();
    let hedge = || HedgeLayer::builder().http();
    let boxed = || client().map_err(BoxError::from as fn(Error) -> BoxError);
    let observed = hedge().observer(Silent).build().unwrap().layer(client());
    let everything = hedge()
        .drain(Drain::default())
        .alternates([client()])
        .observer(Silent);
    let named = Named {
        observed: retry().observer(Silent).build().unwrap().layer(observed),
        limited: retry()
            .attempt_timeout(second)
            .deadline(second)
            .build()
            .unwrap()
            .layer(boxed()),
        answered: {
            let answer = late as OnLate;
            retry()
                .on_timeout(answer)
                .deadline(second)
                .build()
                .unwrap()
                .layer(boxed())
        },
        alternates: hedge()
            .alternates([client()])
            .build()
            .unwrap()
            .layer(client()),
        chosen: {
            let choose = other as Choose;
            hedge()
                .alternates_fn(choose)
                .build()
                .unwrap()
                .layer(client())
        },
        spread: hedge().spread().build().unwrap().layer(client()),
        drained: hedge()
            .drain(Drain::default())
            .build()
            .unwrap()
            .layer(client()),
        everything: everything.build().unwrap().layer(client()),
    };
    async fn status<S>(service: S, url: &str) -> u16
    where
        S: Service<HttpRequest, Response = http::Response<hyper::body::Incoming>>,
        S::Error: std::fmt::Debug,
    {
        let response = service
            .oneshot(request(Method::GET, &format!("{url}/200")))
            .await;
        response.unwrap().status().as_u16()
    }
    let (url, _) = server().await;
    assert_eq!(status(named.observed, &url).await, 200);
    assert_eq!(status(named.limited, &url).await, 200);
    assert_eq!(status(named.answered, &url).await, 200);
    assert_eq!(status(named.alternates, &url).await, 200);
    assert_eq!(status(named.chosen, &url).await, 200);
    assert_eq!(status(named.spread, &url).await, 200);
    assert_eq!(status(named.drained, &url).await, 200);
    assert_eq!(status(named.everything, &url).await, 200);
}

type Store = ServiceFn<fn(String) -> Ready<Result<String, BoxError>>>;
type Busy = fn(&Result<String, BoxError>) -> bool;
type Rule = fn(&Result<String, BoxError>, &Attempt) -> Verdict;
type Key = fn(&String) -> &'static str;

/// Rules of a service without a protocol are types, too.
struct Stores {
    plain: Retry<Store>,
    retry_if: Retry<Store, Generic<RetryIf<Busy>>>,
    classified: Hedge<Store, Generic<ClassifyFn<Rule>>>,
    by_key: Hedge<Store, Generic<EveryError, ByKey<Key>>>,
}

#[tokio::test]
async fn the_rules_of_any_other_service_can_be_named() {
    fn store(key: String) -> Ready<Result<String, BoxError>> {
        ready(Ok(key))
    }
    let store = || service_fn(store as fn(String) -> _);
    let failed: Busy = |outcome| outcome.is_err();
    let verdict: Rule = |_, _| Verdict::Success;
    let key: Key = |_| "page";
    let stores = Stores {
        plain: RetryLayer::builder().build().unwrap().layer(store()),
        retry_if: RetryLayer::builder()
            .retry_if(failed)
            .build()
            .unwrap()
            .layer(store()),
        classified: HedgeLayer::builder()
            .classify_fn(verdict)
            .build()
            .unwrap()
            .layer(store()),
        by_key: HedgeLayer::builder()
            .key(key)
            .build()
            .unwrap()
            .layer(store()),
    };
    assert_eq!(stores.plain.oneshot("a".to_owned()).await.unwrap(), "a");
    assert_eq!(stores.retry_if.oneshot("b".to_owned()).await.unwrap(), "b");
    assert_eq!(
        stores.classified.oneshot("c".to_owned()).await.unwrap(),
        "c"
    );
    assert_eq!(stores.by_key.oneshot("d".to_owned()).await.unwrap(), "d");
}
