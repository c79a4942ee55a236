use http::{Extensions, Method};

use super::head::{Captured, RequestHead};
use super::message::Target;
use super::{Dialect, HttpOutcome, HttpRequest, HttpResponse, Nested, Settings};
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
    captured: Option<Box<Captured>>,
}

impl HttpContext {
    #[inline]
    pub(super) fn new<D: Dialect, Req: HttpRequest>(dialect: &D, request: &Req) -> Self {
        let idempotent = D::is_idempotent(request);
        let mut context = Self {
            idempotent,
            may_retry: *request.method() != Method::CONNECT,
            may_hedge: D::may_hedge(request, idempotent),
            expiry: D::expiry(request),
            overrides: None,
            nested: Nested::default(),
            target: request.target(),
            budget: None,
            captured: None,
        };
        if let Some(settings) = dialect.settings() {
            context.apply(settings, request);
        }
        match request.extensions() {
            Some(extensions) if !extensions.is_empty() => context.with(extensions),
            _ => context,
        }
    }

    /// Asks the user's rules.
    #[inline(never)]
    fn apply<D: Dialect, Req: HttpRequest>(&mut self, settings: &Settings<D>, request: &Req) {
        let head = RequestHead::of(request);
        let widened = settings.hedges_unsafe(head);
        self.idempotent |= widened || settings.is_idempotent(head);
        self.may_hedge = self.may_retry
            && (widened || D::may_hedge(request, self.idempotent))
            && settings.may_hedge(head);
        self.budget = settings.budget(head);
        self.captured = settings
            .sees_outcomes()
            .then(|| Box::new(Captured::of(request)));
    }

    /// Reads the request's extensions.
    #[inline(never)]
    fn with(self, extensions: &Extensions) -> Self {
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
    pub(super) fn view<'a, Res: HttpResponse, E: 'static>(
        &'a self,
        attempt: &Attempt,
        outcome: &'a Result<Res, E>,
        verdict: Verdict,
    ) -> Option<HttpOutcome<'a>> {
        let request = self.captured.as_deref()?;
        let idempotent = self.idempotent;
        Some(HttpOutcome::new(
            request, idempotent, *attempt, outcome, verdict,
        ))
    }
}
