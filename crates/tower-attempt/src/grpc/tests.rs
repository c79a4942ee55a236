use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;

use super::*;
use crate::{Interrupted, Outcomes, Requests};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Result<Response<()>, BoxError>;

const METHOD: &str = "/helloworld.Greeter/SayHello";

fn request() -> http::request::Builder {
    Request::post(METHOD)
}

fn listed() -> Grpc {
    Grpc::default().with(|all| all.idempotent_methods([METHOD]))
}

fn context(grpc: &Grpc, request: http::request::Builder) -> HttpContext {
    grpc.context(&request.body(Full::<Bytes>::default()).unwrap())
}

fn verdict_of(grpc: &Grpc, attempt: Attempt, outcome: &Outcome) -> Verdict {
    let context = context(grpc, request());
    Outcomes::<Request<Full<Bytes>>, _, _>::classify(grpc, &context, &attempt, outcome)
}

fn verdict(attempt: Attempt, outcome: &Outcome) -> Verdict {
    verdict_of(&listed(), attempt, outcome)
}

fn may_hedge(grpc: &Grpc, request: http::request::Builder) -> bool {
    let request = request.body(Full::<Bytes>::default()).unwrap();
    grpc.may_hedge(&grpc.context(&request), &request)
}

#[test]
fn only_declared_methods_are_hedged_and_no_hedge_is() {
    assert!(!may_hedge(&Grpc::default(), request()));
    let declared = |all: &mut ProtocolSettings<Option<GrpcCode>>| {
        all.idempotent_if = Some(Arc::new(|call| call.path() == METHOD));
    };
    for grpc in [listed(), Grpc::default().with(declared)] {
        assert!(may_hedge(&grpc, request()));
        assert!(!may_hedge(&grpc, Request::post("/helloworld.Greeter/Say")));
        assert!(!may_hedge(&grpc, request().extension(Attempt::hedge(2))));
        assert!(may_hedge(&grpc, request().extension(Attempt::retry(2))));
        let narrowed = grpc.with(|all| all.hedge_if = Some(Arc::new(|_| false)));
        assert!(!may_hedge(&narrowed, request()));
    }
}

#[test]
fn a_method_is_listed_with_or_without_the_leading_slash() {
    for name in [METHOD, &METHOD[1..]] {
        let grpc = Grpc::default().with(|all| all.idempotent_methods([name]));
        assert!(may_hedge(&grpc, request()), "{name}");
    }
}

#[test]
fn an_empty_list_of_methods_is_an_error_and_so_are_hedges_without_methods() {
    let expected = "idempotent_methods is [], but must be the full name of at least one method";
    let empty = Grpc::default().with(|all| all.idempotent_methods([""; 0]));
    assert_eq!(empty.validate().unwrap_err().to_string(), expected);
    assert!(Grpc::default().validate().is_ok());
    let error = Grpc::default().validate_hedging().unwrap_err();
    assert_eq!(error.field(), "idempotent_methods");
    assert!(listed().validate_hedging().is_ok());
}

/// A rule classifies the outcome. It does not make a second call of the method safe.
#[test]
fn no_rule_makes_a_method_safe_to_call_again() {
    let code = |code: &str| Response::builder().header("grpc-status", code);
    let without_pushback = || Ok(code("10").body(()).unwrap());
    let pushback = code("10").header("grpc-retry-pushback-ms", "5");
    let pushback = Ok(pushback.body(()).unwrap());
    let aborted = |all: &mut ProtocolSettings<Option<GrpcCode>>| {
        all.classify = Some(Arc::new(|outcome| match outcome.code() {
            Some(GrpcCode::Aborted) if outcome.path() == METHOD => Verdict::transient(),
            _ => outcome.verdict(),
        }));
    };
    let first = Attempt::PRIMARY;
    let grpc = Grpc::default().with(aborted);
    assert_eq!(
        verdict_of(&grpc, first, &without_pushback()),
        Verdict::Unsafe
    );
    assert!(verdict_of(&grpc, first, &pushback).is_retry());
    // A server that forbids a retry may have processed the call.
    let stop = code("10").header("grpc-retry-pushback-ms", "-1");
    let stop = Ok(stop.body(()).unwrap());
    let soon = Verdict::transient().after(std::time::Duration::from_secs(1));
    for wish in [Verdict::transient(), soon] {
        let stubborn = Grpc::default().with(|all| all.classify = Some(Arc::new(move |_| wish)));
        assert_eq!(verdict_of(&stubborn, first, &stop), Verdict::Unsafe);
    }
    let unruled = verdict_of(&Grpc::default(), first, &stop);
    assert_eq!(unruled, Verdict::transient().hinted(Hint::Never));
    let grpc = listed().with(aborted);
    assert_eq!(
        verdict_of(&grpc, first, &without_pushback()),
        Verdict::transient()
    );
}

#[test]
fn a_method_that_is_not_declared_is_retried_only_after_proof_or_pushback() {
    let io = |kind: io::ErrorKind| Err(io::Error::from(kind).into());
    let verdict = |outcome: &Outcome| verdict_of(&Grpc::default(), Attempt::PRIMARY, outcome);
    assert_eq!(verdict(&io(io::ErrorKind::BrokenPipe)), Verdict::Unsafe);
    assert_eq!(
        verdict(&io(io::ErrorKind::ConnectionRefused)),
        Verdict::not_sent()
    );
    let unavailable = || Response::builder().header("grpc-status", "14");
    assert_eq!(
        verdict(&Ok(unavailable().body(()).unwrap())),
        Verdict::Unsafe
    );
    let pushback = unavailable().header("grpc-retry-pushback-ms", "5");
    assert!(verdict(&Ok(pushback.body(()).unwrap())).is_retry());
    let bare = Response::builder().status(503).body(()).unwrap();
    assert_eq!(verdict(&Ok(bare)), Verdict::Unsafe);
}

#[test]
fn an_interrupted_attempt_is_fatal_unless_it_is_a_hedge() {
    let cut = || Err(Interrupted.into());
    assert_eq!(verdict(Attempt::PRIMARY, &cut()), Verdict::Fatal);
    assert_eq!(verdict(Attempt::retry(2), &cut()), Verdict::Fatal);
    assert_eq!(verdict(Attempt::hedge(2), &cut()), Verdict::transient());
}

#[test]
fn a_broken_connection_is_unavailable_and_one_that_was_never_made_is_not_sent() {
    let error = |kind: io::ErrorKind| Err(io::Error::from(kind).into());
    let verdict = |kind| verdict(Attempt::PRIMARY, &error(kind));
    assert_eq!(verdict(io::ErrorKind::BrokenPipe), Verdict::transient());
    assert_eq!(
        verdict(io::ErrorKind::ConnectionRefused),
        Verdict::not_sent()
    );
    assert_eq!(verdict(io::ErrorKind::TimedOut), Verdict::Fatal);
}

#[cfg(feature = "hyper-util-01")]
#[test]
fn a_reset_stream_has_the_code_of_the_grpc_specification() {
    use h2::Reason;
    for (reason, code) in [
        (Reason::CANCEL, GrpcCode::Cancelled),
        (Reason::ENHANCE_YOUR_CALM, GrpcCode::ResourceExhausted),
        (Reason::INADEQUATE_SECURITY, GrpcCode::PermissionDenied),
        (Reason::INTERNAL_ERROR, GrpcCode::Internal),
        (Reason::NO_ERROR, GrpcCode::Internal),
    ] {
        assert_eq!(code_of_reset(reason.into()), code);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_timeout_is_an_expiry_and_no_deadline() {
    let rules = Grpc::default();
    let in_two = Deadline::after(std::time::Duration::from_secs(2));
    let timeout = context(&rules, request().header("grpc-timeout", "2S"));
    assert_eq!(timeout.expiry, Some(in_two));
    type Req = Request<Full<Bytes>>;
    assert_eq!(Requests::<Req>::retry_override(&rules, &timeout), None);
    let never = crate::RetryOverride::new().deadline(Deadline::NEVER);
    let own = context(&rules, request().extension(never));
    assert_eq!(own.expiry, None);
    assert_eq!(Requests::<Req>::retry_override(&rules, &own), Some(never));
}

#[test]
fn a_server_that_forbids_a_retry_has_failed_with_any_status() {
    let outcome = Ok(Response::builder()
        .header("grpc-status", "13")
        .header("grpc-retry-pushback-ms", "-1")
        .body(())
        .unwrap());
    let stop = Verdict::transient().hinted(Hint::Never);
    assert_eq!(verdict(Attempt::PRIMARY, &outcome), stop);
}
