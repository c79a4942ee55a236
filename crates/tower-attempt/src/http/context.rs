use http::{Extensions, Method, Uri};

use super::message::UrlHash;
use super::outcome::Classified;
use super::{HttpResponse, Nested, OutcomeView};
use crate::{Attempt, AttemptKind, Budget, Deadline, HedgeOverride, RetryOverride};

/// The facts that [`Http`](crate::Http) and [`Grpc`](crate::Grpc) keep about a request in flight.
#[derive(Clone, Debug)]
pub struct HttpContext {
    pub(crate) idempotent: bool,
    pub(crate) may_retry: bool,
    pub(crate) may_hedge: bool,
    /// The end of a `grpc-timeout`.
    pub(crate) expiry: Option<Deadline>,
    /// The overrides in the request's extensions. Boxed, because few requests have one.
    pub(super) overrides: Option<Box<(RetryOverride, HedgeOverride)>>,
    pub(crate) nested: Nested,
    /// The hash of the URL of a `reqwest::Request`. If the response's URL has another hash, reqwest's client has
    /// usually followed a redirect. `None` for other types.
    pub(super) url_hash: Option<UrlHash>,
    /// The budget that a `budget_by` or `shared_budget_by` rule chose for the request.
    pub(super) budget: Option<Budget>,
    /// The method and URI for the user's rules about outcomes. Boxed, because few layers have such a rule.
    pub(super) request: Option<Box<(Method, Uri)>>,
}

impl HttpContext {
    /// Reads the request's extensions.
    #[inline(never)]
    pub(super) fn with(self, extensions: &Extensions) -> Self {
        let is_hedge = |attempt: &Attempt| attempt.kind() == AttemptKind::Hedge;
        let retry = extensions.get::<RetryOverride>().copied();
        let hedge = extensions.get::<HedgeOverride>().copied();
        let overrides = (retry.is_some() || hedge.is_some()).then(|| {
            let (retry, mut hedge) = (retry.unwrap_or_default(), hedge.unwrap_or_default());
            hedge.deadline = hedge.deadline.or(retry.deadline);
            Box::new((retry, hedge))
        });
        Self {
            may_hedge: self.may_hedge && !extensions.get().is_some_and(is_hedge),
            overrides,
            nested: Nested::of(extensions),
            ..self
        }
    }

    /// Returns the view of an outcome for the user's rules, or `None` if there is no rule about outcomes.
    pub(super) fn view<'a, Res: HttpResponse, E: 'static, C>(
        &'a self,
        attempt: &Attempt,
        outcome: &'a Result<Res, E>,
        judged: Classified<C>,
    ) -> Option<OutcomeView<'a, C>> {
        Some(OutcomeView {
            request: self.request.as_deref()?,
            idempotent: self.idempotent,
            attempt: *attempt,
            outcome: match outcome {
                Ok(response) => Ok((response.status(), response.headers())),
                Err(error) => Err(error),
            },
            verdict: judged.verdict,
            code: judged.code,
        })
    }
}
