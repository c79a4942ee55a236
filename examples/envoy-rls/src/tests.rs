use super::*;

use ::tests::{servers::Redis as RedisServer, soon};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower_dist_ratelimit::backend::{Answer, BackendError, BoxFuture, Charge, PolicyId};
use tower_dist_ratelimit::{BuildError, Decision};

use crate::bench::{descriptor, should_rate_limit};
use crate::proto::{
    Code, Descriptor, DescriptorStatus, LimitOverride, RateLimitRequest, RateLimitResponse, Unit,
};

const CONFIG: &str = r#"
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
  - key: user
    value: banned
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: user
    value: admin
    rate_limit: { unlimited: true }
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { name: marketing, unit: week, requests_per_unit: 1 }
  - key: path
    rate_limit: { name: 'the "größte" \path', unit: year, requests_per_unit: 100 }
  - key: experiment
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 1 }
"#;

/// A running service, and a connection to it.
struct Running {
    channel: Channel,
    shutdown: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<Result<(), BoxError>>,
}

async fn start(backend: &str, failure_mode: Failure) -> Running {
    let limits = LimitOptions {
        backend: backend.to_owned(),
        failure_mode,
        backend_timeout: 5_000,
        instances: 1,
    };
    start_with(limits.limiters().await.unwrap()).await
}

async fn start_with(limiters: Limiters) -> Running {
    let file = config::parse(CONFIG).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (shutdown, stop) = oneshot::channel();
    let domains = [(file.domain, file.descriptors)].into();
    let served = tokio::spawn(serve(domains, limiters, listener, async {
        let _ = stop.await;
    }));
    let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    Running {
        channel,
        shutdown,
        served,
    }
}

async fn in_memory() -> Running {
    start("memory", Failure::Local).await
}

impl Running {
    async fn call(&self, request: RateLimitRequest) -> Result<RateLimitResponse, tonic::Status> {
        soon(should_rate_limit(&self.channel, request)).await
    }

    /// Calls with these descriptors; the overall code and the statuses.
    async fn ask(&self, descriptors: Vec<Descriptor>) -> (Code, Vec<DescriptorStatus>) {
        let response = self.call(request(descriptors)).await.unwrap();
        (response.overall_code(), response.statuses)
    }

    /// Calls with one descriptor; the code, and the remaining limit.
    async fn one(&self, descriptor: Descriptor) -> (Code, u32) {
        let (overall, statuses) = self.ask(vec![descriptor]).await;
        let [status] = &statuses[..] else {
            panic!("{statuses:?}")
        };
        assert_eq!(overall, status.code());
        (overall, status.limit_remaining)
    }
}

fn request(descriptors: Vec<Descriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "shop".into(),
        descriptors,
        hits_addend: 0,
    }
}

fn user(name: &str) -> Descriptor {
    descriptor(&[("user", name)])
}

fn hits(hits_addend: u64, descriptor: Descriptor) -> Descriptor {
    Descriptor {
        hits_addend: Some(hits_addend),
        ..descriptor
    }
}

fn limit(requests_per_unit: u32, unit: i32, descriptor: Descriptor) -> Descriptor {
    let limit = LimitOverride {
        requests_per_unit,
        unit,
    };
    Descriptor {
        limit: Some(limit),
        ..descriptor
    }
}

#[tokio::test]
async fn a_request_above_the_limit_is_rejected_with_headers() {
    let service = in_memory().await;
    for remaining in [2, 1, 0] {
        assert_eq!(service.one(user("ada")).await, (Code::Ok, remaining));
    }
    let response = service.call(request(vec![user("ada")])).await.unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    let [status] = &response.statuses[..] else {
        panic!("{response:?}")
    };
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!(
        (limit.requests_per_unit, limit.unit(), &*limit.name),
        (3, Unit::Day, "user")
    );
    let reset = status.duration_until_reset.unwrap().whole_seconds();
    // The windows of `Memory` begin with the service.
    assert!((86_300..=86_400).contains(&reset), "{reset}");
    let headers = response.response_headers_to_add.into_iter();
    let headers: Vec<_> = headers.map(|header| (header.key, header.value)).collect();
    let expected = [
        ("ratelimit-policy", r#""user";q=3;w=86400"#.to_owned()),
        ("ratelimit", format!(r#""user";r=0;t={reset}"#)),
        ("retry-after", reset.to_string()),
    ];
    assert_eq!(
        headers,
        expected.map(|(key, value)| (key.to_owned(), value))
    );
    // Other users have counters of their own.
    assert_eq!(service.one(user("bob")).await, (Code::Ok, 2));
}

#[tokio::test]
async fn the_most_specific_rule_of_the_same_depth_holds() {
    let service = in_memory().await;
    assert_eq!(service.one(user("banned")).await, (Code::OverLimit, 0));
    for _ in 0..5 {
        assert_eq!(service.one(user("admin")).await, (Code::Ok, u32::MAX));
    }
    let marketing = |number| descriptor(&[("message_type", "marketing"), ("to_number", number)]);
    assert_eq!(service.one(marketing("1")).await, (Code::Ok, 0));
    assert_eq!(service.one(marketing("1")).await, (Code::OverLimit, 0));
    assert_eq!(service.one(marketing("2")).await, (Code::Ok, 0));
    // These match no rule.
    for entries in [
        &[("message_type", "marketing")][..],
        &[("message_type", "personal"), ("to_number", "1")],
        &[("user", "ada"), ("to_number", "1")],
        &[("tenant", "a")],
    ] {
        let (overall, statuses) = service.ask(vec![descriptor(entries)]).await;
        assert_eq!((overall, &statuses[0].current_limit), (Code::Ok, &None));
    }
    let elsewhere = RateLimitRequest {
        domain: "elsewhere".into(),
        ..request(vec![user("banned")])
    };
    let response = service.call(elsewhere).await.unwrap();
    assert_eq!(response.overall_code(), Code::Ok);
    assert!(response.response_headers_to_add.is_empty());
}

#[tokio::test]
async fn a_value_cannot_imitate_another_descriptor() {
    let service = in_memory().await;
    let number = |number| descriptor(&[("message_type", "marketing"), ("to_number", number)]);
    assert_eq!(service.one(number("a")).await, (Code::Ok, 0));
    for value in ["", "aa", "a\0", "\0a"] {
        assert_eq!(service.one(number(value)).await, (Code::Ok, 0), "{value:?}");
    }
}

#[tokio::test]
async fn every_descriptor_counts_and_any_can_reject() {
    let service = in_memory().await;
    let path = || descriptor(&[("path", "/")]);
    for remaining in [2, 1, 0] {
        let (overall, statuses) = service.ask(vec![user("ada"), path()]).await;
        assert_eq!(overall, Code::Ok);
        assert_eq!(statuses[0].limit_remaining, remaining);
    }
    let (overall, statuses) = service.ask(vec![user("ada"), path()]).await;
    let codes: Vec<_> = statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(
        (overall, codes),
        (Code::OverLimit, vec![Code::OverLimit, Code::Ok])
    );
    assert_eq!(service.one(path()).await, (Code::Ok, 95));
}

#[tokio::test]
async fn hits_are_those_of_the_descriptor_then_of_the_request_then_one() {
    let service = in_memory().await;
    let path = || descriptor(&[("path", "/")]);
    assert_eq!(service.one(path()).await, (Code::Ok, 99));
    let request = RateLimitRequest {
        hits_addend: 9,
        ..request(vec![path(), hits(40, path())])
    };
    service.call(request).await.unwrap();
    assert_eq!(service.one(hits(0, path())).await, (Code::Ok, 50));
    // Rejected hits use up the limit.
    assert_eq!(service.one(hits(51, path())).await, (Code::OverLimit, 0));
    assert_eq!(service.one(path()).await, (Code::OverLimit, 0));
    assert_eq!(service.one(hits(0, path())).await, (Code::OverLimit, 0));
}

#[tokio::test]
async fn a_limit_in_the_descriptor_replaces_the_one_of_the_configuration() {
    let service = in_memory().await;
    let two = || limit(2, Unit::Month.into(), user("banned"));
    assert_eq!(service.one(two()).await, (Code::Ok, 1));
    assert_eq!(service.one(two()).await, (Code::Ok, 0));
    assert_eq!(service.one(two()).await, (Code::OverLimit, 0));
    let (_, statuses) = service.ask(vec![two()]).await;
    let limit_now = statuses[0].current_limit.as_ref().unwrap();
    assert_eq!(
        (limit_now.requests_per_unit, limit_now.unit()),
        (2, Unit::Month)
    );
    assert_eq!(
        service.one(limit(0, Unit::Day.into(), user("x"))).await,
        (Code::OverLimit, 0)
    );
    for unit in [0, 8, -1] {
        let status = service
            .call(request(vec![limit(1, unit, user("x"))]))
            .await
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_name_is_text_that_fits_into_a_header() {
    let service = in_memory().await;
    let path = descriptor(&[("path", "/")]);
    let response = service.call(request(vec![path])).await.unwrap();
    let policy = &response.response_headers_to_add[0].value;
    assert_eq!(policy, r#""the _gr__te_ _path";q=100;w=31536000"#);
}

#[tokio::test]
async fn a_rule_in_shadow_mode_counts_without_rejecting() {
    let service = in_memory().await;
    for _ in 0..3 {
        let descriptors = vec![descriptor(&[("experiment", "a")])];
        let response = service.call(request(descriptors)).await.unwrap();
        let status = &response.statuses[0];
        assert_eq!(
            (response.overall_code(), status.code()),
            (Code::Ok, Code::Ok)
        );
        assert_eq!(status.limit_remaining, 0);
        assert!(status.current_limit.is_some());
        assert!(response.response_headers_to_add.is_empty());
    }
}

#[tokio::test]
async fn malformed_requests_are_invalid_arguments() {
    let service = in_memory().await;
    let no_domain = RateLimitRequest {
        domain: String::new(),
        ..request(vec![user("ada")])
    };
    let incomplete = "descriptors: each needs entries, and each entry a key";
    for (request, says) in [
        (no_domain, "domain: must not be empty"),
        (request(vec![]), "descriptors: must not be empty"),
        (request(vec![Descriptor::default()]), incomplete),
        (
            request(vec![user("ada"), descriptor(&[("", "ada")])]),
            incomplete,
        ),
    ] {
        let status = service.call(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert_eq!(status.message(), says);
    }
    assert_eq!(service.one(user("ada")).await, (Code::Ok, 2));
}

#[tokio::test]
async fn health_is_serving_until_shutdown_which_ends_watches() {
    let Running {
        channel,
        shutdown,
        served,
    } = in_memory().await;
    let mut client = HealthClient::new(channel);
    for service in ["", RateLimitServer::NAME] {
        let service = service.to_owned();
        let response = soon(client.check(HealthCheckRequest { service }))
            .await
            .unwrap();
        assert_eq!(response.get_ref().status, ServingStatus::Serving as i32);
    }
    let service = RateLimitServer::NAME.to_owned();
    let mut watch = client
        .watch(HealthCheckRequest { service })
        .await
        .unwrap()
        .into_inner();
    let mut next = async || Some(soon(watch.message()).await.unwrap()?.status);
    assert_eq!(next().await, Some(ServingStatus::Serving as i32));
    shutdown.send(()).unwrap();
    assert_eq!(next().await, Some(ServingStatus::NotServing as i32));
    assert_eq!(next().await, None);
    soon(served).await.unwrap().unwrap();
}

#[tokio::test]
async fn ten_thousand_descriptors_in_a_call_take_bounded_memory() {
    let policy = Policy::new("envoy", Quota::per_day(1)).fixed_window();
    let limiter = Limiter::new(Memory::with_capacity(1_000), policy.dynamic_quotas()).unwrap();
    let service = start_with([(Unit::Day.into(), limiter)].into()).await;
    for call in 0..10 {
        let users = (0..10_000).map(|n| user(&format!("{call}-{n}")));
        let (overall, statuses) = service.ask(users.collect()).await;
        assert_eq!((overall, statuses.len()), (Code::Ok, 10_000));
        assert!(statuses.iter().all(|status| status.limit_remaining == 2));
    }
    // The backend keeps 1,000 keys, so later keys have replaced this one.
    assert_eq!(service.one(user("0-0")).await, (Code::Ok, 2));
}

#[tokio::test]
async fn services_share_limits_in_redis() {
    let redis = RedisServer::start();
    let a = start(&redis.url(), Failure::Closed).await;
    let b = start(&redis.url(), Failure::Closed).await;
    for (service, expected) in [(&a, 2), (&b, 1), (&a, 0)] {
        assert_eq!(service.one(user("ada")).await, (Code::Ok, expected));
    }
    assert_eq!(b.one(user("ada")).await, (Code::OverLimit, 0));
    assert_eq!(a.one(user("banned")).await, (Code::OverLimit, 0));
    let users = (0..10_000).map(|n| user(&n.to_string()));
    let (overall, statuses) = a.ask(users.collect()).await;
    assert_eq!((overall, statuses.len()), (Code::Ok, 10_000));
}

#[tokio::test]
async fn the_failure_mode_decides_while_redis_is_down() {
    let mut redis = RedisServer::start();
    let url = redis.url();
    redis.kill();
    let local = start(&url, Failure::Local).await;
    let open = start(&url, Failure::Open).await;
    let closed = start(&url, Failure::Closed).await;
    for remaining in [2, 1, 0] {
        assert_eq!(local.one(user("ada")).await, (Code::Ok, remaining));
    }
    assert_eq!(local.one(user("ada")).await, (Code::OverLimit, 0));
    for _ in 0..5 {
        let (overall, statuses) = open.ask(vec![user("ada")]).await;
        assert_eq!((overall, &statuses[0].current_limit), (Code::Ok, &None));
        let status = closed.call(request(vec![user("ada")])).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
    }
}

/// Decides, but fails to make corrections.
struct Uncorrected(Memory);

impl Backend for Uncorrected {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.0.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        self.0.acquire(charges, out)
    }

    fn settle(&self, _: &[Charge<'_>], _: i64) -> Answer {
        Answer::Failed(BackendError::new("no corrections"))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.0.reset(policy, key)
    }
}

#[tokio::test]
async fn a_rejection_stays_over_limit_if_the_backend_fails_to_count_the_rejected_hits() {
    for failure_mode in [
        FailureMode::Open,
        FailureMode::Closed,
        FailureMode::default(),
    ] {
        let backend = Uncorrected(Memory::default());
        let policy = Policy::new("day", Quota::per_day(1)).fixed_window();
        let limiter = Limiter::builder(backend, policy.dynamic_quotas());
        let limiter = limiter.failure_mode(failure_mode).build().unwrap();
        let service = start_with([(Unit::Day.into(), limiter)].into()).await;
        assert_eq!(service.one(hits(2, user("ada"))).await, (Code::Ok, 1));
        let rejected = service.one(hits(2, user("ada"))).await;
        assert_eq!(rejected, (Code::OverLimit, 0), "{failure_mode:?}");
    }
}

#[test]
fn errors_in_the_configuration_name_the_line_and_the_field() {
    for (yaml, line, words) in [
        (
            "domain: a\ndescriptors:\n- value: b",
            3,
            "missing field `key`",
        ),
        ("domain: ''\ndescriptors: []", 1, "must not be empty"),
        ("domain: a\ndescriptors:\n- key: ''", 3, "must not be empty"),
        (
            "domain: a\ndescriptors:\n- key: a\n  value: b*",
            4,
            "wildcards are not supported",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  ratelimit: {}",
            4,
            "unknown field `ratelimit`",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n- key: a",
            3,
            "the descriptor with key `a` and no value is there twice",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  value: b\n- key: a\n  value: b",
            3,
            "the descriptor with key `a` and value `b` is there twice",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  rate_limit:\n    unit: fortnight",
            5,
            "`fortnight`",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day",
            5,
            "missing field `requests_per_unit`",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  rate_limit:\n    requests_per_unit: 1",
            5,
            "missing field `unit`",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  rate_limit:\n    unit: day\n    requests_per_unit: -1",
            6,
            "requests_per_unit: -1",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  rate_limit:\n    unlimited: true\n    unit: day",
            5,
            "`unlimited` excludes",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  descriptors:\n  - key: b\n    shadow_mode: 7",
            6,
            "shadow_mode: 7",
        ),
        ("domain: a\ndescriptors:\n- key: a\n wrong", 4, "wrong"),
    ] {
        let error = config::parse(yaml).unwrap_err().to_string();
        assert!(
            error.contains(&format!("line {line} ")),
            "line {line}: {error}"
        );
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_domain_comes_from_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a.yaml", "b.yaml"].map(|name| dir.path().join(name));
    for path in &paths {
        std::fs::write(path, CONFIG).unwrap();
    }
    assert!(config::load(&paths[..1]).unwrap().contains_key("shop"));
    let error = config::load(&paths).unwrap_err().to_string();
    assert!(
        error.contains("b.yaml") && error.ends_with("another file has the domain `shop`"),
        "{error}"
    );
    let error = config::load(&[dir.path().join("none")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("none"), "{error}");
}
