use std::time::Duration;

use http::{Method, Request, Response, StatusCode};

use super::*;
use crate::RetryReason;

type Outcome = Result<Response<()>, &'static str>;

fn verdict(request: &Request<()>, outcome: &Outcome) -> Verdict {
    let context = Classify::<_, Response<()>, &str>::context(&HttpClassify::default(), request);
    HttpClassify::default().classify_with(&context, outcome)
}

impl HttpClassify {
    fn classify_with(self, context: &HttpContext, outcome: &Outcome) -> Verdict {
        Classify::<Request<()>, _, _>::classify(&self, context, &Attempt::PRIMARY, outcome)
    }
}

fn request(method: Method, fields: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

fn status(status: u16) -> Outcome {
    Ok(Response::builder().status(status).body(()).unwrap())
}

fn status_after(status: u16, retry_after: &str) -> Outcome {
    let response = Response::builder().status(status);
    let response = response.header("retry-after", retry_after);
    Ok(response.body(()).unwrap())
}

#[test]
fn every_status_has_the_verdict_of_the_table() {
    let get = request(Method::GET, &[]);
    let post = request(Method::POST, &[]);
    for code in 100..600 {
        let (idempotent, other) = match code {
            429 => (Verdict::throttled(), Verdict::throttled()),
            408 | 504 => (Verdict::timeout(), Verdict::Fatal),
            425 | 500 | 502 | 503 => (Verdict::transient(), Verdict::Fatal),
            501 | 505.. => (Verdict::Fatal, Verdict::Fatal),
            _ => (Verdict::Success, Verdict::Success),
        };
        assert_eq!(verdict(&get, &status(code)), idempotent, "GET {code}");
        assert_eq!(verdict(&post, &status(code)), other, "POST {code}");
    }
}

#[test]
fn methods_are_idempotent_as_rfc_9110_and_the_draft_of_query_say() {
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PUT", "DELETE"] {
        let request = request(method.parse().unwrap(), &[]);
        assert_eq!(
            verdict(&request, &Err("reset")),
            Verdict::transient(),
            "{method}"
        );
    }
    for method in ["POST", "PATCH", "PROPFIND", "get"] {
        let request = request(method.parse().unwrap(), &[]);
        assert_eq!(verdict(&request, &Err("reset")), Verdict::Fatal, "{method}");
    }
}

#[test]
fn an_idempotency_key_makes_a_post_repeatable() {
    let post = request(Method::POST, &[("Idempotency-Key", "\"8e03978e\"")]);
    assert_eq!(verdict(&post, &status(503)), Verdict::transient());
    assert_eq!(verdict(&post, &Err("reset")), Verdict::transient());
    let blank = request(Method::POST, &[("Idempotency-Key", " ")]);
    assert_eq!(verdict(&blank, &status(503)), Verdict::Fatal);
}

/// The server answers 409 to the second while it works on the first.
#[test]
fn what_may_fail_because_the_first_succeeded_is_not_hedged() {
    let key = [("idempotency-key", "\"8e03978e\"")];
    let condition = [("if-none-match", "*")];
    for (method, fields, may_hedge) in [
        (Method::POST, &key[..], false),
        (Method::PUT, &condition[..], false),
        (Method::DELETE, &[("if-match", "\"a\"")][..], false),
        (Method::PUT, &[][..], true),
        (Method::GET, &condition[..], true),
        (Method::GET, &key[..], true),
    ] {
        let context = HttpContext::new(&request(method.clone(), fields));
        assert_eq!(context.may_hedge(), may_hedge, "{method} {fields:?}");
        assert!(context.may_repeat());
    }
}

#[test]
fn a_post_may_be_repeated_but_never_hedged() {
    let context = HttpContext::new(&request(Method::POST, &[]));
    assert!(context.may_repeat());
    assert!(!context.may_hedge());
}

#[test]
fn a_hedge_is_not_hedged_again_but_a_retry_may_be() {
    for (attempt, may_hedge) in [(Attempt::hedge(2), false), (Attempt::retry(2), true)] {
        let mut request = request(Method::GET, &[]);
        request.extensions_mut().insert(attempt);
        assert_eq!(HttpContext::new(&request).may_hedge(), may_hedge);
        assert!(HttpContext::new(&request).may_repeat());
    }
}

#[test]
fn connect_is_left_alone() {
    let context = HttpContext::new(&request(Method::CONNECT, &[]));
    assert!(!context.may_repeat());
    assert!(!context.may_hedge());
}

#[test]
fn retry_after_is_a_hint_on_retried_statuses_only() {
    let get = request(Method::GET, &[]);
    let second = Duration::from_secs(1);
    assert_eq!(
        verdict(&get, &status_after(503, "1")),
        Verdict::throttled().after(second)
    );
    assert_eq!(
        verdict(&get, &status_after(502, "1")),
        Verdict::transient().after(second)
    );
    assert_eq!(verdict(&get, &status_after(301, "1")), Verdict::Success);
    assert_eq!(verdict(&get, &status_after(501, "1")), Verdict::Fatal);
    assert_eq!(
        verdict(&get, &status_after(503, "soon")),
        Verdict::transient()
    );
}

#[test]
fn the_ratelimit_field_serves_on_a_429_without_retry_after() {
    let get = request(Method::GET, &[]);
    let refused = |status: u16, retry_after: Option<&str>| {
        let mut response = Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header("retry-after", value);
        }
        let response = response.header("ratelimit", r#""default";r=0;t=3"#);
        Ok(response.body(()).unwrap())
    };
    let seconds = Duration::from_secs;
    assert_eq!(
        verdict(&get, &refused(429, None)),
        Verdict::throttled().after(seconds(3))
    );
    assert_eq!(
        verdict(&get, &refused(429, Some("1"))),
        Verdict::throttled().after(seconds(1))
    );
    // Of an answer that was allowed, it says when the quota is whole again.
    assert_eq!(verdict(&get, &refused(500, None)), Verdict::transient());
    assert_eq!(verdict(&get, &refused(200, None)), Verdict::Success);
}

#[test]
fn the_ratelimit_field_serves_also_where_a_closure_asks_for_the_retry() {
    let classify = HttpClassify::default().last_word(|_| Verdict::throttled());
    let post = request(Method::POST, &[]);
    let context = Classify::<_, Response<()>, &str>::context(&classify, &post);
    for (status, hint) in [(429, Some(Duration::from_secs(3))), (503, None)] {
        let response = Response::builder().status(status);
        let response = response.header("ratelimit", r#""default";r=0;t=3"#);
        let outcome: Outcome = Ok(response.body(()).unwrap());
        let verdict = Classify::<Request<()>, _, _>::classify(
            &classify,
            &context,
            &Attempt::PRIMARY,
            &outcome,
        );
        let expected = Verdict::throttled();
        let expected = hint.map_or(expected, |hint| expected.after(hint));
        assert_eq!(verdict, expected, "{status}");
    }
}

#[test]
fn a_closure_sees_the_outcome_and_the_standard_verdict() {
    let classify = HttpClassify::default().last_word(|outcome| match outcome.status() {
        Some(StatusCode::NOT_FOUND) => Verdict::transient(),
        None if outcome.error().is_some_and(|error| error.is::<&str>()) => Verdict::Fatal,
        _ => outcome.verdict(),
    });
    let get = request(Method::GET, &[]);
    let context = Classify::<_, Response<()>, &str>::context(&classify, &get);
    let judged = |outcome: Outcome| {
        Classify::<Request<()>, _, _>::classify(&classify, &context, &Attempt::PRIMARY, &outcome)
    };
    assert_eq!(judged(status(404)), Verdict::transient());
    assert_eq!(judged(Err("reset")), Verdict::Fatal);
    assert_eq!(
        judged(status(429)),
        Verdict::Retry {
            reason: RetryReason::Throttled,
            hint: None
        }
    );
}
