use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::*;
use crate::{Outcomes, Requests, RetryReason};

type Body = Full<Bytes>;
type Outcome = Result<Response<()>, &'static str>;

fn verdict(request: &Request<Body>, outcome: &Outcome) -> Verdict {
    verdict_of(&Http::default(), request, outcome)
}

fn verdict_of(http: &Http, request: &Request<Body>, outcome: &Outcome) -> Verdict {
    let context = Requests::context(http, request);
    Outcomes::<Request<Body>, _, _>::classify(http, &context, &Attempt::PRIMARY, outcome)
}

fn context(request: &Request<Body>) -> HttpContext {
    Requests::context(&Http::default(), request)
}

fn request(method: Method, fields: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).unwrap()
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
            408 | 504 => (Verdict::timeout(), Verdict::Unsafe),
            425 | 500 | 502 | 503 => (Verdict::transient(), Verdict::Unsafe),
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
        assert_eq!(
            verdict(&request, &Err("reset")),
            Verdict::Unsafe,
            "{method}"
        );
    }
}

#[test]
fn an_idempotency_key_makes_a_post_safe_to_resend() {
    let post = request(Method::POST, &[("Idempotency-Key", "\"8e03978e\"")]);
    assert_eq!(verdict(&post, &status(503)), Verdict::transient());
    assert_eq!(verdict(&post, &Err("reset")), Verdict::transient());
    let blank = request(Method::POST, &[("Idempotency-Key", " ")]);
    assert_eq!(verdict(&blank, &status(503)), Verdict::Unsafe);
}

#[test]
fn only_safe_methods_are_hedged() {
    let key = [("idempotency-key", "\"8e03978e\"")];
    let condition = [("if-none-match", "*")];
    for (method, fields, may_hedge) in [
        ("GET", &[][..], true),
        ("HEAD", &[], true),
        ("OPTIONS", &[], true),
        ("TRACE", &[], true),
        ("QUERY", &[], true),
        ("GET", &condition, true),
        ("GET", &key, true),
        ("PUT", &[], false),
        ("DELETE", &[], false),
        ("POST", &[], false),
        ("POST", &key, false),
        ("CONNECT", &[], false),
    ] {
        let context = context(&request(method.parse().unwrap(), fields));
        assert_eq!(context.may_hedge, may_hedge, "{method} {fields:?}");
        assert_eq!(context.may_retry, method != "CONNECT");
    }
}

#[test]
fn rules_narrow_and_widen_the_requests_that_are_hedged() {
    let path = |uri: &str, method: Method| {
        let mut request = request(method, &[]);
        *request.uri_mut() = uri.parse().unwrap();
        request
    };
    let http = Http::default()
        .with(|all| all.hedge_if = Some(Arc::new(|request| request.path() != "/report")))
        .with(|all| {
            all.hedge_unsafe_if = Some(Arc::new(|request| request.path().starts_with("/search")))
        });
    for (uri, method, may_hedge) in [
        ("/page", Method::GET, true),
        ("/report", Method::GET, false),
        ("/search", Method::POST, true),
        ("/page", Method::POST, false),
        ("/search", Method::CONNECT, false),
    ] {
        let context = Requests::context(&http, &path(uri, method.clone()));
        assert_eq!(context.may_hedge, may_hedge, "{method} {uri}");
    }
    // A retryable outcome does not win the race.
    let search = path("/search", Method::POST);
    assert_eq!(
        verdict_of(&http, &search, &status(503)),
        Verdict::transient()
    );
}

#[test]
fn a_hedge_is_not_hedged_again_but_a_retry_may_be() {
    for (attempt, may_hedge) in [(Attempt::hedge(2), false), (Attempt::retry(2), true)] {
        let mut request = request(Method::GET, &[]);
        request.extensions_mut().insert(attempt);
        assert_eq!(context(&request).may_hedge, may_hedge);
        assert!(context(&request).may_retry);
    }
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
        verdict(&get, &status_after(503, "0")),
        Verdict::transient().after(Duration::ZERO)
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
fn the_ratelimit_field_is_the_hint_of_a_429_without_retry_after() {
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
    // In an allowed response, the field says when the full quota returns.
    assert_eq!(verdict(&get, &refused(500, None)), Verdict::transient());
    assert_eq!(verdict(&get, &refused(200, None)), Verdict::Success);
}

#[test]
fn the_ratelimit_field_is_the_hint_of_a_retry_that_a_rule_wants() {
    let http = Http::default().with(|all| all.classify = Some(Arc::new(|_| Verdict::throttled())));
    let get = request(Method::GET, &[]);
    for (status, hint) in [(429, Some(Duration::from_secs(3))), (503, None)] {
        let response = Response::builder().status(status);
        let response = response.header("ratelimit", r#""default";r=0;t=3"#);
        let verdict = verdict_of(&http, &get, &Ok(response.body(()).unwrap()));
        let expected = Verdict::throttled();
        let expected = hint.map_or(expected, |hint| expected.after(hint));
        assert_eq!(verdict, expected, "{status}");
    }
}

#[test]
fn a_rule_sees_the_outcome_the_request_and_the_standard_verdict() {
    let http = Http::default().with(|all| {
        all.classify = Some(Arc::new(|outcome| match outcome.status() {
            Some(StatusCode::NOT_FOUND)
                if outcome.method() == Method::GET
                    && outcome.path() == "/item"
                    && outcome.authority() == Some("a.example:8080")
                    && outcome.attempt() == Attempt::PRIMARY
                    && outcome.is_idempotent() =>
            {
                Verdict::transient()
            }
            None if outcome.error().is_some_and(|error| error.is::<&str>()) => Verdict::Fatal,
            _ => outcome.verdict(),
        }));
    });
    let mut get = request(Method::GET, &[]);
    *get.uri_mut() = "http://a.example:8080/item?q=1".parse().unwrap();
    let verdict = |outcome| verdict_of(&http, &get, &outcome);
    assert_eq!(verdict(status(404)), Verdict::transient());
    assert_eq!(verdict(Err("reset")), Verdict::Fatal);
    assert_eq!(
        verdict(status(429)),
        Verdict::Retry {
            reason: RetryReason::Throttled,
            hint: None
        }
    );
}

/// Each verdict that a rule may return, on outcomes that prove nothing.
#[test]
fn no_rule_makes_a_request_safe_to_resend() {
    let refused = || Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
    for wish in [
        Verdict::transient(),
        Verdict::throttled(),
        Verdict::timeout(),
        Verdict::not_sent(),
        Verdict::Unprocessed,
    ] {
        let http = Http::default().with(|all| all.classify = Some(Arc::new(move |_| wish)));
        let post = request(Method::POST, &[]);
        for outcome in [
            status(200),
            status(404),
            status(500),
            status(503),
            Err("reset"),
        ] {
            assert_eq!(
                verdict_of(&http, &post, &outcome),
                Verdict::Unsafe,
                "{wish:?}"
            );
        }
        // A 429 and proof make it safe.
        assert!(
            verdict_of(&http, &post, &status(429)).is_retry(),
            "{wish:?}"
        );
        let context = Requests::context(&http, &post);
        let proven: Result<Response<()>, _> = refused();
        let attempt = Attempt::PRIMARY;
        let verdict = Outcomes::<Request<Body>, _, _>::classify(&http, &context, &attempt, &proven);
        assert_eq!(verdict, wish);
        // "Unprocessed" and "not sent" need proof.
        let get = request(Method::GET, &[]);
        let unproven = match wish {
            wish if wish.claims_proof() => Verdict::transient(),
            wish => wish,
        };
        assert_eq!(verdict_of(&http, &get, &status(404)), unproven);
        // `idempotent_if` makes it safe.
        let declared =
            http.with(|all| all.idempotent_if = Some(Arc::new(|request| request.path() == "/")));
        assert_eq!(verdict_of(&declared, &post, &status(404)), unproven);
    }
}

#[test]
fn a_rules_verdict_keeps_its_wait_when_it_lacks_proof() {
    let wait = Duration::from_secs(7);
    let http = Http::default()
        .with(|all| all.classify = Some(Arc::new(move |_| Verdict::not_sent().after(wait))));
    let get = request(Method::GET, &[]);
    let expected = Verdict::transient().after(wait);
    assert_eq!(verdict_of(&http, &get, &status(404)), expected);
}

#[test]
fn a_list_of_statuses_adds_to_the_default_ones() {
    let locked = Http::default().with(|all| all.retry_statuses = [StatusCode::LOCKED].into());
    let (get, post) = (request(Method::GET, &[]), request(Method::POST, &[]));
    for (code, expected) in [(423, Verdict::transient()), (503, Verdict::transient())] {
        assert_eq!(verdict_of(&locked, &get, &status(code)), expected);
        assert_eq!(verdict_of(&locked, &post, &status(code)), Verdict::Unsafe);
    }
    assert_eq!(verdict_of(&locked, &get, &status(404)), Verdict::Success);
    let contradiction = locked.with(|all| all.retry_statuses = [StatusCode::FOUND].into());
    let error = contradiction.validate().unwrap_err().to_string();
    assert_eq!(
        error,
        "retry_statuses is 302, but must be statuses of 400 or above"
    );
}
