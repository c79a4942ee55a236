//! Promises of gRPC calls.

use tower_jitter_retry::Grpc;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_negative_pushback_overrides_a_closure_that_would_retry() {
    let layer = grpc()
        .classify(|o| match o.code() {
            Some(tower_jitter_retry::GrpcCode::Aborted) => Verdict::transient(),
            _ => o.verdict(),
        })
        .build()
        .unwrap();
    let upstream = Upstream::new([status(&[
        ("grpc-status", "10"),
        ("grpc-retry-pushback-ms", "-1"),
    ])]);
    layer
        .layer(upstream.clone())
        .oneshot(rpc(&[]))
        .await
        .unwrap();
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_callers_timeout_does_not_lift_retry_until() {
    let upstream = Upstream::new([status(&[("grpc-status", "14")])]);
    let layer = grpc().retry_until(ms(50)).build().unwrap();
    layer
        .layer(upstream.clone())
        .oneshot(rpc(&[("grpc-timeout", "60S")]))
        .await
        .unwrap();
    assert_eq!(upstream.seen().len(), 1);
}

fn grpc() -> RetryLayerBuilder<Grpc> {
    let builder = builder().budget(Budget::unlimited()).grpc();
    builder.idempotent_methods(["/a.B/C"])
}
fn status(fields: &[(&'static str, &'static str)]) -> Answer {
    Answer::Status(200, fields.to_vec())
}
fn rpc(fields: &[(&str, &str)]) -> Req {
    let mut r = Request::post("/a.B/C");
    for (n, v) in fields {
        r = r.header(*n, *v);
    }
    r.body(Full::from("\0\0\0\0\0")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_callers_timeout_does_not_lift_the_servers_deadline() {
    let layer = grpc().deadline(ms(50)).build().unwrap();
    let start = Instant::now();
    let never = service_fn(|_: Req| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let Ok(_) = layer
        .layer(never)
        .oneshot(rpc(&[("grpc-timeout", "1000000S")]))
        .await;
    assert_eq!(start.elapsed(), ms(50));
}

#[tokio::test(start_paused = true)]
async fn pushback_restarts_a_custom_backoff() {
    let log = Log::default();
    let layer = grpc()
        .max_attempts(5)
        .observer(log.clone())
        .backoff_by(|retry, _| Some(ms(100) * retry))
        .build()
        .unwrap();
    let un = || status(&[("grpc-status", "14")]);
    let upstream = Upstream::new([
        un(),
        un(),
        status(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "7")]),
        un(),
        status(&[("grpc-status", "0")]),
    ]);
    layer.layer(upstream).oneshot(rpc(&[])).await.unwrap();
    let delays: Vec<_> = log
        .take()
        .into_iter()
        .filter_map(|e| match e {
            Scheduled(_, d, _) => Some(d),
            _ => None,
        })
        .collect();
    assert_eq!(delays, [ms(100), ms(200), ms(7), ms(100)]);
}

#[tokio::test(start_paused = true)]
async fn a_negative_pushback_counts_for_a_throttle() {
    let throttle = Budget::grpc_throttle(2, 1.0);
    let layer = grpc().budget(throttle.clone()).build().unwrap();
    for _ in 0..2 {
        let upstream = Upstream::new([status(&[
            ("grpc-status", "13"),
            ("grpc-retry-pushback-ms", "-1"),
        ])]);
        layer.layer(upstream).oneshot(rpc(&[])).await.unwrap();
    }
    assert!(throttle.withdraw().is_none());
}
