//! Requests that are another client's hedge already.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::{Budget, HedgeLayer};

use crate::support::*;

type Body = Empty<Bytes>;

async fn assert_passed_through<P, S>(
    layer: HedgeLayer<P>,
    path: &str,
    of: impl Fn(HedgeLayer<P>) -> S,
) where
    S: tower::Service<Request<Body>, Error = Infallible> + Clone,
{
    let handle = layer.handle();
    let service = of(layer);
    for _ in 0..300 {
        let request = Request::get(path).header("x-hedge-attempt", 2);
        let call = service.clone().oneshot(request.body(Body::new()).unwrap());
        let Ok(_) = call.await;
    }
    let counts = handle.counts();
    assert_eq!((counts.calls, counts.ineligible), (300, 300));
    assert_eq!(
        (counts.late, counts.hedges, counts.not_resendable),
        (0, 0, 0)
    );
    assert_eq!(handle.delay(), None, "nothing is learned from hedges");
}

async fn answer(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    sleep(ms(20)).await;
    Ok(Response::new(Body::new()))
}

#[tokio::test(start_paused = true)]
async fn a_hedge_of_another_client_is_ineligible_over_http() {
    let budget = Budget::ratio(1.0).burst(1).initial(0);
    let layer = HedgeLayer::builder().http().budget(budget.clone());
    let layer = layer.build().unwrap();
    assert_passed_through(layer, "/", |layer| layer.layer(service_fn(answer))).await;
    assert!(budget.withdraw().is_none(), "hedges do not deposit");
}

#[cfg(feature = "grpc")]
#[tokio::test(start_paused = true)]
async fn a_hedge_of_another_client_is_ineligible_over_grpc() {
    let layer = HedgeLayer::grpc(["/greeter/Hello"]).unwrap();
    let of = |layer: HedgeLayer<_>| layer.layer(service_fn(answer));
    assert_passed_through(layer, "/greeter/Hello", of).await;
}
