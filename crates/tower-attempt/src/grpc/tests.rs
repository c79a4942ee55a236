use std::io;

use http::{Request, Response};

use super::*;
use crate::Interrupted;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Result<Response<()>, BoxError>;

const METHOD: &str = "/helloworld.Greeter/SayHello";

fn request() -> http::request::Builder {
    Request::post(METHOD)
}

fn context(rules: &GrpcClassify, request: http::request::Builder) -> GrpcContext {
    Classify::<_, Response<()>, BoxError>::context(rules, &request.body(()).unwrap())
}

fn verdict(attempt: Attempt, outcome: &Outcome) -> Verdict {
    let rules = GrpcClassify::default();
    let context = context(&rules, request());
    Classify::<Request<()>, _, _>::classify(&rules, &context, &attempt, outcome)
}

fn may_hedge(rules: &GrpcClassify, request: http::request::Builder) -> bool {
    let request = request.body(()).unwrap();
    let context = Classify::<_, Response<()>, BoxError>::context(rules, &request);
    Classify::<_, Response<()>, BoxError>::may_hedge(rules, &context, &request)
}

#[test]
fn only_listed_methods_are_hedged_and_no_hedge_is() {
    let rules = GrpcClassify::default();
    assert!(!may_hedge(&rules, request()));
    let rules = rules.idempotent_methods([METHOD]);
    assert!(may_hedge(&rules, request()));
    assert!(!may_hedge(&rules, Request::post("/helloworld.Greeter/Say")));
    assert!(!may_hedge(&rules, request().extension(Attempt::hedge(2))));
    assert!(may_hedge(&rules, request().extension(Attempt::retry(2))));
}

#[test]
fn a_method_is_listed_with_or_without_the_slash_in_front() {
    for name in [METHOD, &METHOD[1..]] {
        let rules = GrpcClassify::default().idempotent_methods([name]);
        assert!(may_hedge(&rules, request()), "{name}");
    }
}

#[test]
fn an_attempt_cut_off_on_this_side_is_final_unless_it_is_a_hedge() {
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

#[test]
fn a_reset_stream_has_the_code_that_grpc_gives_it() {
    for (reason, code) in [
        (Reason::CANCEL, GrpcCode::Cancelled),
        (Reason::ENHANCE_YOUR_CALM, GrpcCode::ResourceExhausted),
        (Reason::INADEQUATE_SECURITY, GrpcCode::PermissionDenied),
        (Reason::INTERNAL_ERROR, GrpcCode::Internal),
        (Reason::NO_ERROR, GrpcCode::Internal),
    ] {
        assert_eq!(code_of_reset(reason), code);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_an_expiry_and_no_deadline() {
    let rules = GrpcClassify::default();
    let in_two = Deadline::after(std::time::Duration::from_secs(2));
    let timeout = context(&rules, request().header("grpc-timeout", "2S"));
    assert_eq!((timeout.deadline, timeout.expiry), (None, Some(in_two)));
    let own = context(&rules, request().extension(Deadline::NEVER));
    assert_eq!((own.deadline, own.expiry), (Some(Deadline::NEVER), None));
}

#[test]
fn a_server_that_says_stop_has_failed_whatever_its_status() {
    let outcome = Ok(Response::builder()
        .header("grpc-status", "13")
        .header("grpc-retry-pushback-ms", "-1")
        .body(())
        .unwrap());
    let stop = Verdict::transient().hinted(Hint::Never);
    assert_eq!(verdict(Attempt::PRIMARY, &outcome), stop);
}
