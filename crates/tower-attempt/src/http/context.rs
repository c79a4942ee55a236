use http::Extensions;

use super::head::Captured;
use super::message::Target;
use super::{HttpResponse, Nested, OutcomeView};
use crate::{Attempt, AttemptKind, Budget, Deadline, HedgeOverride, RetryOverride, Verdict};

/// The facts that [`Http`](crate::Http) and [`Grpc`](crate::Grpc) keep about a request in flight.
#[derive(Clone, Debug)]
pub struct HttpContext {
    pub(crate) idempotent: bool,
    pub(crate) may_retry: bool,
    pub(crate) may_hedge: bool,
    /// The end of a `grpc-timeout`.
    pub(crate) expiry: Option<Deadline>,
    /// Boxed, since few requests have one.
    pub(super) overrides: Option<Box<(RetryOverride, HedgeOverride)>>,
    pub(crate) nested: Nested,
    /// The request's destination, if its client may be redirected elsewhere.
    pub(super) target: Option<Target>,
    /// The request's own budget.
    pub(super) budget: Option<Budget>,
    /// Boxed, since it exists only if a rule looks at outcomes.
    pub(super) captured: Option<Box<Captured>>,
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

    /// The view of an outcome for the user's rules; `None` if there is no rule to see it.
    pub(super) fn view<'a, Res: HttpResponse, E: 'static, C>(
        &'a self,
        attempt: &Attempt,
        outcome: &'a Result<Res, E>,
        verdict: Verdict,
        code: C,
    ) -> Option<OutcomeView<'a, C>> {
        let request = self.captured.as_deref()?;
        let idempotent = self.idempotent;
        Some(OutcomeView::new(
            request, idempotent, *attempt, outcome, verdict, code,
        ))
    }
}
