//! The laws of a tower service, for every layer and their compositions.
//!
//! In each of these tests the probe enforces the first law: it panics when an instance that was not polled ready is
//! called.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod subjects;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use subjects::{BACKOFF, Readies, Stack, Subject, TRIGGER, all, all_but_throttles, throttles};
use tests::{Answer, Probe, ProbeError, Readiness, Record, Request};
use tokio::time::{Instant, advance, sleep, timeout};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Service, ServiceExt};

fn request(method: Method) -> Request {
    let mut request = Request::new(Full::new(Bytes::from_static(b"hello")));
    *request.method_mut() = method;
    request
        .headers_mut()
        .insert("x-api-key", "k".parse().unwrap());
    request
}

fn get() -> Request {
    request(Method::GET)
}

async fn call(stack: &mut Stack, request: Request) -> Result<StatusCode, ProbeError> {
    let response = stack.ready().await?.call(request).await?;
    Ok(response.status())
}

fn assert_nothing_is_left(name: &str, record: &Record, probe: &Probe, permits: usize) {
    assert_eq!(record.in_flight(), 0, "{name}: attempts are left");
    assert_eq!(record.live_responses(), 0, "{name}: responses are left");
    let free = probe.free_permits().available_permits();
    assert_eq!(free, permits, "{name}: a permit is held");
}

/// The first attempt fails, the second is late, and the third succeeds, so that layers retry and hedge.
fn troubled(n: u32, _: &Request) -> Answer {
    match n % 3 {
        1 => Answer::UNAVAILABLE.after(3),
        2 => Answer::OK.after(25),
        _ => Answer::OK.after(2),
    }
}

#[tokio::test(start_paused = true)]
async fn every_attempt_goes_to_an_instance_that_was_readied_for_it() {
    for Subject { name, stack, .. } in all() {
        let probe = Probe::new(troubled).readiness(|_| Readiness::After(1));
        let mut stack = stack(probe.clone());
        for _ in 0..10 {
            call(&mut stack, get()).await.expect(name);
            // A clone must be polled ready itself, even if the original is ready.
            let readied = stack.ready().await.expect(name);
            let mut clone = readied.clone();
            call(&mut clone, get()).await.expect(name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_ready_is_never_called() {
    for Subject { name, stack, .. } in all_but_throttles() {
        let probe = Probe::always(Answer::OK).readiness(|_| Readiness::Never);
        let mut stack = stack(probe.clone());
        let mut ready = task::spawn(stack.ready());
        assert_pending!(ready.poll(), "{name}");
        advance(Duration::from_secs(3600)).await;
        assert_pending!(ready.poll(), "{name}");
        assert_eq!(probe.record().calls(), 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_is_awaited_no_longer_than_it_takes() {
    for Subject { name, stack, .. } in all_but_throttles() {
        let probe = Probe::always(Answer::OK).readiness(|_| Readiness::After(5));
        let mut stack = stack(probe.clone());
        let mut ready = task::spawn(stack.ready());
        assert_pending!(ready.poll(), "{name}");
        advance(Duration::from_millis(5)).await;
        assert!(ready.is_woken(), "{name}");
        assert!(assert_ready!(ready.poll()).is_ok(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_readiness_error_passes_through_unchanged() {
    for Subject { name, stack, .. } in all_but_throttles() {
        let probe = Probe::always(Answer::OK).readiness(|_| Readiness::Fails("gone"));
        let error = stack(probe).ready().await.map(|_| ()).unwrap_err();
        assert_eq!(error, ProbeError("gone"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_is_always_ready_and_holds_no_permit() {
    for Subject { name, stack, .. } in throttles() {
        for readiness in [Readiness::Never, Readiness::Fails("gone"), Readiness::Now] {
            let probe = Probe::always(Answer::OK)
                .permits(1)
                .readiness(move |_| readiness);
            let mut stack = stack(probe.clone());
            assert_ready_ok!(task::spawn(stack.ready()).poll(), "{name}");
            assert_nothing_is_left(name, &probe.record(), &probe, 1);
            assert_eq!(probe.record().calls(), 0, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_throttle_waits_for_the_inner_service_and_no_longer() {
    for Subject { name, stack, .. } in throttles() {
        let probe = Probe::always(Answer::OK).readiness(|_| Readiness::After(5));
        let start = Instant::now();
        call(&mut stack(probe), get()).await.expect(name);
        assert_eq!(start.elapsed(), Duration::from_millis(5), "{name}");
        let probe = Probe::always(Answer::OK).readiness(|_| Readiness::Never);
        let mut stack = stack(probe.clone());
        let call = timeout(Duration::from_secs(3600), call(&mut stack, get()));
        assert!(call.await.is_err(), "{name}");
        assert_eq!(probe.record().calls(), 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_readiness_error_is_the_error_of_a_throttles_call() {
    for Subject { name, stack, .. } in throttles() {
        let probe = Probe::always(Answer::OK).readiness(|_| Readiness::Fails("gone"));
        let error = call(&mut stack(probe), request(Method::POST))
            .await
            .unwrap_err();
        assert_eq!(error, ProbeError("gone"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_passes_through_unchanged() {
    for Subject { name, stack, .. } in all() {
        let probe = Probe::always(Answer::error("reset"));
        let error = call(&mut stack(probe), get()).await.unwrap_err();
        assert_eq!(error, ProbeError("reset"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_permit_is_enough_for_any_call() {
    for Subject { name, stack, .. } in all() {
        let probe = Probe::new(troubled).permits(1);
        let mut stack = stack(probe.clone());
        for _ in 0..10 {
            let call = call(&mut stack, get());
            let status = timeout(Duration::from_secs(10), call).await;
            status.expect(name).expect(name);
            assert_nothing_is_left(name, &probe.record(), &probe, 1);
        }
        assert_eq!(probe.record().peak(), 1, "{name}");
    }
}

/// Drops the call at every millisecond of its retries and hedges.
#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_and_releases_everything_immediately() {
    for Subject { name, stack, .. } in all() {
        for permits in [1, 2, 100] {
            for millis in 0..u64::from(BACKOFF + TRIGGER) + 30 {
                let probe = Probe::new(troubled)
                    .permits(permits)
                    .readiness(|_| Readiness::After(1));
                let record = probe.record();
                let mut stack = stack(probe.clone());
                stack.ready().await.expect(name);
                let mut call = task::spawn(stack.call(get()));
                for _ in 0..millis {
                    if call.poll().is_ready() {
                        break;
                    }
                    advance(Duration::from_millis(1)).await;
                }
                let calls = record.calls();
                drop(call);
                assert_nothing_is_left(name, &record, &probe, permits);
                // No work continues after the drop.
                sleep(Duration::from_secs(10)).await;
                assert_eq!(record.calls(), calls, "{name} at {millis} ms");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_ready_service_gives_its_permit_back() {
    for Subject { name, stack, .. } in all_but_throttles() {
        let probe = Probe::always(Answer::OK).permits(1);
        let mut stack = stack(probe.clone());
        stack.ready().await.expect(name);
        assert_eq!(probe.free_permits().available_permits(), 0, "{name}");
        drop(stack);
        assert_nothing_is_left(name, &probe.record(), &probe, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_sends_its_first_attempt_and_no_other() {
    for Subject { name, stack, .. } in all() {
        let probe = Probe::new(troubled).permits(1);
        let mut stack = stack(probe.clone());
        let call = stack.ready().await.expect(name).call(get());
        sleep(Duration::from_secs(10)).await;
        assert!(probe.record().calls() <= 1, "{name}");
        drop(call);
        assert_nothing_is_left(name, &probe.record(), &probe, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_single_attempt_are_unchanged() {
    // A fan-out always sends extra attempts.
    for Subject { name, stack, .. } in all().into_iter().filter(|it| it.name != "fan-out") {
        let probe = Probe::always(Answer::OK.after(1));
        let record = probe.record();
        let mut stack = stack(probe);
        let response = stack.ready().await.expect(name).call(get()).await;
        let response = response.expect(name);
        // The only extension is the probe's own.
        assert_eq!(response.extensions().len(), 1, "{name}");
        assert!(record.extensions()[0].is_empty(), "{name}");
        assert_eq!(record.calls(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_never_resent_is_not_copied() {
    for Subject {
        name,
        stack,
        readies,
    } in all()
    {
        let probe = Probe::always(Answer::UNAVAILABLE);
        let mut stack = stack(probe.clone());
        let clones = probe.record().clones();
        let status = call(&mut stack, request(Method::CONNECT)).await;
        assert_eq!(status, Ok(StatusCode::SERVICE_UNAVAILABLE), "{name}");
        let left = u32::from(readies != Readies::InPollReady);
        assert_eq!(probe.record().clones(), clones + left, "{name}");
        assert_eq!(probe.record().calls(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_that_failed_is_sent_once() {
    for Subject { name, stack, .. } in all() {
        for answer in [
            Answer::UNAVAILABLE.after(100),
            Answer::error("reset").after(100),
        ] {
            let probe = Probe::always(answer);
            let _ = call(&mut stack(probe.clone()), request(Method::POST)).await;
            assert_eq!(probe.record().calls(), 1, "{name}");
        }
    }
}

/// On a paused clock, a call takes exactly the time of its attempts and waits.
#[tokio::test(start_paused = true)]
async fn a_call_takes_as_long_as_its_attempt() {
    for Subject { name, stack, .. } in all() {
        let start = Instant::now();
        let probe = Probe::always(Answer::OK.after(7));
        call(&mut stack(probe), get()).await.expect(name);
        assert_eq!(start.elapsed(), Duration::from_millis(7), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_attempt_releases_everything() {
    for Subject { name, stack, .. } in all() {
        let probe = Probe::new(|n, _| match n {
            1 => Answer::UNAVAILABLE,
            _ => panic!("in the service"),
        })
        .permits(1);
        let mut stack = stack(probe.clone());
        stack.ready().await.expect(name);
        let call = tokio::spawn(stack.call(get()));
        let _ = call.await;
        drop(stack);
        assert_nothing_is_left(name, &probe.record(), &probe, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_may_be_in_flight_together() {
    for Subject { name, stack, .. } in all() {
        let probe = Probe::new(troubled);
        let stack = stack(probe.clone());
        let calls = (0..20).map(|_| {
            let mut stack = stack.clone();
            tokio::spawn(async move { call(&mut stack, get()).await })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().expect(name);
        }
        assert_nothing_is_left(
            name,
            &probe.record(),
            &probe,
            tokio::sync::Semaphore::MAX_PERMITS,
        );
    }
}

/// The future of a stack is `Send`.
#[tokio::test(start_paused = true)]
async fn a_future_is_send_when_the_inner_one_is() {
    fn send<F: Future + Send>(_: &F) {}
    for Subject { stack, .. } in all() {
        let mut stack = stack(Probe::always(Answer::OK));
        assert_ready_ok!(task::spawn(stack.ready()).poll());
        send(&stack.call(get()));
    }
}
