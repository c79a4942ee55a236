//! The numbers in the table of the retry crate's guide: how many requests one call causes with two layers of three
//! attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tokio::time::sleep;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_jitter_retry::{Backoff, Budget, RetryLayer};

type HttpRequest = Request<Empty<Bytes>>;
type Outcome<T> = Result<T, BoxError>;

/// The place of the layer below.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Below {
    SameTask,
    OtherTask,
    /// Neither requests nor responses keep their extensions.
    OtherProcess,
}

/// The first `slow` requests fail after 600 ms, and all others after 1 ms. The layer above has a timeout of 1 s, if
/// `times_out` is true.
#[derive(Clone, Copy, Debug)]
struct Load {
    slow: u32,
    is_error: bool,
    times_out: bool,
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A service whose requests fail as the load describes, and their number.
fn failing<Req, Res>(
    load: Load,
    response: Res,
) -> (
    impl Service<Req, Response = Res, Error = BoxError, Future: Send> + Clone + use<Req, Res>,
    Arc<AtomicU32>,
)
where
    Res: Clone + Send + 'static,
    Req: 'static,
{
    let sent = Arc::<AtomicU32>::default();
    let count = Arc::clone(&sent);
    let service = service_fn(move |_: Req| {
        let is_slow = count.fetch_add(1, SeqCst) < load.slow;
        let response = response.clone();
        async move {
            sleep(ms(if is_slow { 600 } else { 1 })).await;
            match load.is_error {
                true => Err("reset".into()),
                false => Ok(response),
            }
        }
    });
    (service, sent)
}

/// Sends a request through two HTTP layers. Returns how many requests arrive.
async fn over_http(below: Below, load: Load) -> u32 {
    let unavailable = {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    };
    let (failing, sent) = failing::<HttpRequest, _>(load, unavailable);
    let builder = || {
        let builder = RetryLayer::builder().http().backoff(Backoff::none());
        builder.budget(Budget::unlimited())
    };
    let inner = builder().build().unwrap().layer(failing);
    let placed = service_fn(move |mut request: HttpRequest| {
        if below == Below::OtherProcess {
            request.extensions_mut().clear();
        }
        let call = inner.clone().oneshot(request);
        async move {
            let mut outcome: Outcome<Response<()>> = match below {
                Below::SameTask => call.await,
                _ => tokio::spawn(call).await.unwrap(),
            };
            if let (Below::OtherProcess, Ok(response)) = (below, &mut outcome) {
                response.extensions_mut().clear();
            }
            outcome
        }
    });
    let request = Request::new(Empty::new());
    let _ = match load.times_out {
        true => {
            let outer = builder().attempt_timeout(ms(1_000)).build().unwrap();
            outer.layer(placed).oneshot(request).await
        }
        false => {
            builder()
                .build()
                .unwrap()
                .layer(placed)
                .oneshot(request)
                .await
        }
    };
    // A request that the layer above left behind may still be retried in its own task.
    sleep(ms(10_000)).await;
    sent.load(SeqCst)
}

/// Sends a request without extensions through two layers. Returns how many requests arrive.
async fn without_extensions(below: Below, load: Load) -> u32 {
    let (failing, sent) = failing::<u32, _>(load, "busy");
    let builder = || {
        let builder = RetryLayer::builder().retry_if(|_: &Outcome<&str>| true);
        builder.backoff(Backoff::none()).budget(Budget::unlimited())
    };
    let inner = builder().build().unwrap().layer(failing);
    let placed = service_fn(move |request: u32| {
        let call = inner.clone().oneshot(request);
        async move {
            match below {
                Below::SameTask => call.await,
                _ => tokio::spawn(call).await.unwrap(),
            }
        }
    });
    let _ = match load.times_out {
        true => {
            let outer = builder().attempt_timeout(ms(1_000)).build().unwrap();
            outer.layer(placed).oneshot(7).await
        }
        false => builder().build().unwrap().layer(placed).oneshot(7).await,
    };
    sleep(ms(10_000)).await;
    sent.load(SeqCst)
}

const RESPONSES: Load = Load {
    slow: 0,
    is_error: false,
    times_out: false,
};
const ERRORS: Load = Load {
    is_error: true,
    ..RESPONSES
};

/// Loads in which the layer above times out after each possible number of slow requests.
fn timeouts() -> impl Iterator<Item = Load> {
    let loads = |slow| {
        [false, true].map(|is_error| Load {
            slow,
            is_error,
            times_out: true,
        })
    };
    (0..=9).flat_map(loads)
}

#[tokio::test(start_paused = true)]
async fn http_requests_are_as_many_as_the_guide_says() {
    for (below, responses, errors, most) in [
        (Below::SameTask, 3, 3, 3),
        (Below::OtherTask, 3, 4, 5),
        (Below::OtherProcess, 9, 9, 9),
    ] {
        assert_eq!(over_http(below, RESPONSES).await, responses, "{below:?}");
        assert_eq!(over_http(below, ERRORS).await, errors, "{below:?}");
        let mut seen = 0;
        for load in timeouts() {
            seen = seen.max(over_http(below, load).await);
        }
        assert_eq!(seen, most, "{below:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_extensions_are_as_many_as_the_guide_says() {
    for (below, responses, errors, most) in
        [(Below::SameTask, 3, 3, 5), (Below::OtherTask, 9, 9, 9)]
    {
        let counts = (
            without_extensions(below, RESPONSES).await,
            without_extensions(below, ERRORS).await,
        );
        assert_eq!(counts, (responses, errors), "{below:?}");
        let mut seen = 0;
        for load in timeouts() {
            seen = seen.max(without_extensions(below, load).await);
        }
        assert_eq!(seen, most, "{below:?}");
    }
}
