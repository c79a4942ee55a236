//! A retry layer around a service that always succeeds: the cost of retries that never happen.

mod inner;
mod peers;

use tower::Layer;
use tower_jitter_retry::RetryLayer;

use self::inner::Inner;
use self::peers::{resilience_budget, resilience_http, tower, tower_budget, tower_shared};
use crate::measure::{Case, Figure, Subject};
use crate::report::OURS;

/// Requests that cost nothing to copy.
pub(crate) const PLAIN: &str = "retry, success";
/// Ordinary requests, built for each call.
const HTTP: &str = "retry, success, http";

pub(crate) fn cases() -> Vec<Case> {
    vec![plain(), http()]
}

fn plain() -> Case {
    let request = || 7_u64;
    let ours = RetryLayer::builder().build().expect("defaults are valid");
    let resilience = peers::resilience().build();
    let budgeted = peers::resilience().budget(resilience_budget()).build();
    let subjects = vec![
        Subject::new("bare", Inner, request),
        Subject::new(OURS, ours.layer(Inner), request),
        Subject::new("tower", tower().layer(Inner), request).goal(1.0),
        Subject::new("tower+arc", tower_shared().layer(Inner), request).goal(1.0),
        Subject::new("tower+budget", tower_budget().layer(Inner), request).goal(0.3),
        Subject::new("tower-resilience", resilience.layer(Inner), request).goal(0.3),
        Subject::new("tower-resilience+budget", budgeted.layer(Inner), request).goal(0.2),
    ];
    Case::new(PLAIN, Figure::Call, subjects)
}

fn http() -> Case {
    let request = inner::request;
    let ours = RetryLayer::http();
    let resilience = resilience_http().build();
    let budgeted = resilience_http().budget(resilience_budget()).build();
    let subjects = vec![
        Subject::new("bare", Inner, request),
        Subject::new(OURS, ours.layer(Inner), request),
        Subject::new("tower", tower().layer(Inner), request).goal(1.0),
        Subject::new("tower+arc", tower_shared().layer(Inner), request).goal(1.0),
        Subject::new("tower+budget", tower_budget().layer(Inner), request),
        Subject::new("tower-resilience", resilience.layer(Inner), request),
        Subject::new("tower-resilience+budget", budgeted.layer(Inner), request),
    ];
    Case::new(HTTP, Figure::Call, subjects)
}
