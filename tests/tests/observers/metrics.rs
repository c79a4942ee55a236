//! A Prometheus exporter is scraped over HTTP.

use std::collections::BTreeSet;

use axum::Router;
use axum::routing::get as on_get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota};
use tower_hedge_latency::{Budget, MetricsObserver};
use tower_jitter_retry::Mode;

use crate::{Step, backend, get, hedge, ms, retry, run};

/// The page that a Prometheus server would scrape after the calls.
fn scrape(calls: impl AsyncFnOnce()) -> Vec<String> {
    let exporter = PrometheusBuilder::new();
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let exporter = exporter.set_buckets_for_metric(seconds, &MetricsObserver::BUCKETS);
    let recorder = exporter.unwrap().build_recorder();
    metrics::with_local_recorder(&recorder, || run(calls()));
    let handle = recorder.handle();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let page = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let app = Router::new().route("/metrics", on_get(move || async move { handle.render() }));
        tokio::spawn(async move { axum::serve(listener, app).await });
        reqwest::get(url).await.unwrap().text().await.unwrap()
    });
    page.lines().map(str::to_owned).collect()
}

/// The lines of a page that contain a text, sorted.
fn lines<'a>(page: &'a [String], text: &str) -> BTreeSet<&'a str> {
    let lines = page.iter().map(String::as_str);
    lines.filter(|line| line.contains(text)).collect()
}

async fn calls(observer: MetricsObserver) {
    let one = async |steps: &'static [Step], budget: Budget| {
        let layer = retry(observer.clone()).budget(budget).build().unwrap();
        let _ = layer.layer(backend(steps)).oneshot(get()).await;
    };
    one(&[(5, Ok(200))], Budget::unlimited()).await;
    one(&[(5, Ok(503)), (5, Ok(200))], Budget::unlimited()).await;
    one(&[(5, Ok(429))], Budget::ratio(0.0).burst(1).initial(0)).await;
    let one = async |steps: &'static [Step], budget: Budget| {
        let layer = hedge(observer.clone()).budget(budget).build().unwrap();
        let call = layer.layer(backend(steps)).oneshot(get());
        let _ = timeout(ms(50), call).await;
    };
    one(&[(5, Ok(200))], Budget::unlimited()).await;
    one(&[(90, Ok(200)), (5, Ok(200))], Budget::unlimited()).await;
    one(&[(12, Ok(200))], Budget::ratio(0.0).burst(1).initial(0)).await;
    let three: &[Step] = &[(90, Ok(200)), (90, Ok(200)), (90, Ok(200))];
    one(three, Budget::unlimited()).await;
}

#[test]
fn every_metric_has_a_type_a_help_text_and_its_labels() {
    let page = scrape(async || calls(MetricsObserver::new()).await);
    assert_eq!(
        lines(&page, "# TYPE"),
        BTreeSet::from([
            "# TYPE hedge_attempt_duration_seconds histogram",
            "# TYPE hedge_attempts_total counter",
            "# TYPE hedge_call_duration_seconds histogram",
            "# TYPE hedge_skipped_total counter",
            "# TYPE retry_attempt_duration_seconds histogram",
            "# TYPE retry_attempts_total counter",
            "# TYPE retry_call_duration_seconds histogram",
            "# TYPE retry_delay_seconds histogram",
        ])
    );
    assert_eq!(
        lines(&page, "# HELP"),
        BTreeSet::from([
            "# HELP hedge_attempt_duration_seconds Time from sending an attempt to its end: response head, error, timeout or cancellation.",
            "# HELP hedge_attempts_total Attempts sent.",
            "# HELP hedge_call_duration_seconds Time of a call with all its attempts and delays.",
            "# HELP hedge_skipped_total Hedges that were due and not sent.",
            "# HELP retry_attempt_duration_seconds Time from sending an attempt to its end: response head, error, timeout or cancellation.",
            "# HELP retry_attempts_total Attempts sent.",
            "# HELP retry_call_duration_seconds Time of a call with all its attempts and delays.",
            "# HELP retry_delay_seconds Delay before a retry.",
        ])
    );
    assert_eq!(
        lines(&page, "_total{"),
        BTreeSet::from([
            r#"hedge_attempts_total{name="payments",kind="hedge"} 3"#,
            r#"hedge_attempts_total{name="payments",kind="primary"} 4"#,
            r#"hedge_skipped_total{name="payments",reason="denied"} 1"#,
            r#"retry_attempts_total{name="payments",kind="primary"} 3"#,
            r#"retry_attempts_total{name="payments",kind="retry"} 1"#,
        ])
    );
    assert_eq!(
        lines(&page, "_count{"),
        BTreeSet::from([
            r#"hedge_attempt_duration_seconds_count{name="payments",kind="hedge",outcome="cancelled"} 2"#,
            r#"hedge_attempt_duration_seconds_count{name="payments",kind="hedge",outcome="success"} 1"#,
            r#"hedge_attempt_duration_seconds_count{name="payments",kind="primary",outcome="cancelled"} 2"#,
            r#"hedge_attempt_duration_seconds_count{name="payments",kind="primary",outcome="success"} 2"#,
            r#"hedge_call_duration_seconds_count{name="payments",reason="cancelled",winner="none"} 1"#,
            r#"hedge_call_duration_seconds_count{name="payments",reason="success",winner="hedge"} 1"#,
            r#"hedge_call_duration_seconds_count{name="payments",reason="success",winner="primary"} 2"#,
            r#"retry_attempt_duration_seconds_count{name="payments",kind="primary",outcome="success"} 1"#,
            r#"retry_attempt_duration_seconds_count{name="payments",kind="primary",outcome="throttled"} 1"#,
            r#"retry_attempt_duration_seconds_count{name="payments",kind="primary",outcome="transient"} 1"#,
            r#"retry_attempt_duration_seconds_count{name="payments",kind="retry",outcome="success"} 1"#,
            r#"retry_call_duration_seconds_count{name="payments",reason="budget_exhausted",winner="none"} 1"#,
            r#"retry_call_duration_seconds_count{name="payments",reason="success",winner="primary"} 1"#,
            r#"retry_call_duration_seconds_count{name="payments",reason="success",winner="retry"} 1"#,
            r#"retry_delay_seconds_count{name="payments",source="backoff"} 1"#,
        ])
    );
    // In seconds: the retried call took 110 ms, in the buckets of OpenTelemetry.
    let retried =
        r#"retry_call_duration_seconds_bucket{name="payments",reason="success",winner="retry","#;
    let buckets: Vec<_> = page
        .iter()
        .filter(|line| line.starts_with(retried))
        .collect();
    assert_eq!(buckets.len(), MetricsObserver::BUCKETS.len() + 1);
    assert_eq!(*buckets[0], format!(r#"{retried}le="0.005"}} 0"#));
    assert_eq!(*buckets[5], format!(r#"{retried}le="0.1"}} 0"#));
    assert_eq!(*buckets[6], format!(r#"{retried}le="0.25"}} 1"#));
}

#[test]
fn the_destination_is_a_label_only_on_demand() {
    let page = scrape(async || calls(MetricsObserver::new().with_destination()).await);
    let samples = page
        .iter()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in samples {
        let labels = r#"{name="payments",destination="pay.test:8080","#;
        assert!(line.contains(labels), "{line}");
    }
    let page = scrape(async || calls(MetricsObserver::new()).await);
    assert!(lines(&page, "destination").is_empty());
}

#[test]
fn shadow_mode_is_not_recorded_as_delays() {
    let page = scrape(async || {
        let layer = retry(MetricsObserver::new()).mode(Mode::Shadow);
        let steps: &[Step] = &[(5, Ok(503))];
        let service = layer.build().unwrap().layer(backend(steps));
        service.oneshot(get()).await.unwrap();
    });
    assert_eq!(
        lines(&page, r#"reason="shadow",winner="none"} "#).len(),
        2,
        "sum and count"
    );
    assert!(lines(&page, "retry_delay_seconds_").is_empty());
}

#[test]
fn each_metric_of_a_rate_limit_has_a_help_text_and_the_name_as_a_label() {
    let page = scrape(async || {
        let layer = CallLimitLayer::builder(Memory::default())
            .name("public-api")
            .limit(Policy::new("all", Quota::per_second(1)))
            .observer(tower_dist_ratelimit::MetricsObserver::new())
            .waiting()
            .max_waiters(1);
        let inner = service_fn(async |request: u32| Ok::<_, std::io::Error>(request));
        let service = layer.build().unwrap().layer(inner);
        let [first, second, third] = [1, 2, 3].map(|request| service.clone().oneshot(request));
        let outcomes = tokio::join!(first, second, third);
        assert!(outcomes.0.is_ok() && outcomes.1.is_ok() && outcomes.2.is_err());
    });
    assert_eq!(
        lines(&page, "# HELP"),
        BTreeSet::from([
            "# HELP ratelimit_rejections_total Rejections, real or shadowed, per rejecting policy.",
            "# HELP ratelimit_requests_total Requests with an outcome.",
            "# HELP ratelimit_wait_seconds Time that requests wait for their turn.",
        ])
    );
    let label = r#"name="public-api""#;
    let all: Vec<_> = page
        .iter()
        .filter(|line| line.starts_with("ratelimit_"))
        .collect();
    assert!(all.iter().all(|line| line.contains(label)), "{all:#?}");
    for sample in [
        r#"ratelimit_requests_total{name="public-api",outcome="allowed"} 2"#,
        r#"ratelimit_requests_total{name="public-api",outcome="rejected"} 1"#,
        r#"ratelimit_rejections_total{name="public-api",reason="too_long",policy=""} 1"#,
        r#"ratelimit_wait_seconds_count{name="public-api"} 1"#,
    ] {
        assert!(page.iter().any(|line| line == sample), "{sample} {all:#?}");
    }
}
