use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};

use super::outcome::Classified;
use super::{HEDGE_ATTEMPT, HttpContext, HttpRequest, HttpResponse, Nested, ProtocolSettings};
use crate::errors::chain;
use crate::{
    Attempt, AttemptKind, AttemptOutcome, Budget, Deadline, HedgeOverride, Hint, Outcomes, PerKey,
    Protocol, Rejected, ReplayableRequest, RequestLine, Requests, RetryOverride, RetryReason,
    Verdict,
};

/// The default of [`ProtocolSettings::replay_limit`], as in linkerd2.
const REPLAY_LIMIT: usize = 64 * 1024;

/// A protocol that uses HTTP messages: [`Http`](crate::Http) itself, or [`Grpc`](crate::Grpc).
pub trait Dialect: Protocol + Clone + Default + 'static {
    /// The protocol's own status code in an [`OutcomeView`](crate::OutcomeView): `()` for HTTP.
    type Code: Copy + Default + std::fmt::Debug;

    #[doc(hidden)]
    fn settings(&self) -> Option<&ProtocolSettings<Self::Code>>;

    #[doc(hidden)]
    fn settings_mut(&mut self) -> &mut Option<Arc<ProtocolSettings<Self::Code>>>;

    /// Changes the settings with `set`.
    #[must_use]
    fn with(mut self, set: impl FnOnce(&mut ProtocolSettings<Self::Code>)) -> Self {
        set(Arc::make_mut(self.settings_mut().get_or_insert_default()));
        self
    }

    #[doc(hidden)]
    fn prepare<Req: HttpRequest>(&self, _: &mut Req) {}

    /// Whether the protocol itself makes the request idempotent.
    #[doc(hidden)]
    fn is_idempotent<Req: HttpRequest>(request: &Req) -> bool;

    /// Whether the protocol allows concurrent attempts of the request. `idempotent` may come from a user's rule.
    #[doc(hidden)]
    fn may_hedge<Req: HttpRequest>(request: &Req, idempotent: bool) -> bool;

    #[doc(hidden)]
    #[must_use]
    fn expiry<Req: HttpRequest>(_: &Req) -> Option<Deadline> {
        None
    }

    /// Adds the dialect's own header fields to an extra attempt.
    #[doc(hidden)]
    fn mark<Req: HttpRequest>(_: &HttpContext, _previous: u32, _: &mut Req) {}

    /// Whether the head of a response shows a success by the standard rules, without any settings. Over gRPC, may be
    /// `false` for a success.
    #[doc(hidden)]
    fn is_success<Res: HttpResponse>(response: &Res) -> bool;

    /// Returns the gRPC status code in a response head.
    #[doc(hidden)]
    #[must_use]
    fn grpc_status<Res: HttpResponse>(_: &Res) -> Option<u16> {
        None
    }

    /// Classifies an outcome by the standard rules.
    #[doc(hidden)]
    fn classify_outcome<Res: HttpResponse, E: 'static>(
        &self,
        context: &HttpContext,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Classified<Self::Code>;

    #[doc(hidden)]
    #[must_use]
    fn timeout() -> Self::Code {
        Self::Code::default()
    }

    #[doc(hidden)]
    fn hint<Res: HttpResponse>(response: &Res) -> Option<Hint>;
}

/// Applies the user's rules about requests.
#[inline(never)]
fn apply<D: Dialect, Req: HttpRequest>(
    settings: &ProtocolSettings<D::Code>,
    context: &mut HttpContext,
    request: &Req,
) {
    let head = request.head();
    let widened = settings
        .hedge_unsafe_if
        .as_ref()
        .is_some_and(|rule| rule(head));
    context.idempotent |= widened || settings.is_idempotent(head);
    context.may_hedge = context.may_retry
        && (widened || D::may_hedge(request, context.idempotent))
        && settings.hedge_if.as_ref().is_none_or(|rule| rule(head));
    let budgets = settings.budgets.as_ref();
    context.budget = budgets.map(|(budgets, key)| match key(head) {
        Some(key) => budgets.get(key),
        None => budgets.get(&None::<&str>),
    });
    if settings.classify.is_some() || settings.backoff.is_some() {
        context.request = Some(Box::new((request.method().clone(), request.uri())));
    }
}

/// Applies the user's `classify` rule, and decides whether a resend is safe.
///
/// Cold, to stay out of the code path of most successes without settings.
#[cold]
#[inline(never)]
fn decide<D: Dialect, Res: HttpResponse, E: 'static>(
    dialect: &D,
    context: &HttpContext,
    attempt: &Attempt,
    outcome: &Result<Res, E>,
    judged: Classified<D::Code>,
) -> Verdict {
    let is_proven = judged.verdict.claims_proof();
    let rule = dialect.settings().and_then(|all| all.classify.as_ref());
    let verdict = match (rule, context.view(attempt, outcome, judged)) {
        (Some(rule), Some(view)) => rule(view),
        _ => judged.verdict,
    };
    let verdict = match verdict.hint() {
        // A resend is forbidden, so no check is needed.
        Some(Hint::Never) => verdict,
        _ if verdict.is_retry() && !(context.idempotent || is_proven || judged.rejected) => {
            Verdict::Unsafe
        }
        hint if verdict.claims_proof() && !is_proven => Verdict::Retry {
            reason: RetryReason::Transient,
            hint,
        },
        _ => verdict,
    };
    match outcome {
        // A hint in the response also applies to a retry for which a user's rule names no wait.
        Ok(response) if matches!(verdict, Verdict::Retry { hint: None, .. }) => {
            D::hint(response).map_or(verdict, |hint| verdict.hinted(hint))
        }
        // A user's rule changed the verdict, and may have ignored a rejection by a layer below.
        Err(_) if verdict.is_retry() && verdict != judged.verdict => {
            Rejected::amend(verdict, attempt, outcome)
        }
        _ => verdict,
    }
}

impl<D: Dialect, Req: ReplayableRequest> Requests<Req> for D {
    type Context = HttpContext;
    type Saved = Req::Saved;

    #[inline]
    fn prepare(&self, request: &mut Req) {
        Dialect::prepare(self, request);
    }

    #[inline]
    fn context(&self, request: &Req) -> HttpContext {
        let idempotent = D::is_idempotent(request);
        let mut context = HttpContext {
            idempotent,
            may_retry: *request.method() != Method::CONNECT,
            may_hedge: D::may_hedge(request, idempotent),
            overrides: None,
            expiry: D::expiry(request),
            nested: Nested::default(),
            url_hash: request.url_hash(),
            budget: None,
            request: None,
        };
        if let Some(settings) = self.settings() {
            apply::<D, _>(settings, &mut context, request);
        }
        match request.extensions() {
            Some(extensions) if !extensions.is_empty() => context.with(extensions),
            _ => context,
        }
    }

    fn request_line(&self, request: &Req) -> RequestLine {
        RequestLine(Some((request.method().clone(), request.uri())))
    }

    #[inline]
    fn class<T: PerKey>(&self, request: &Req, table: &T) -> Option<T::Found> {
        let key = self.settings()?.key.as_ref()?;
        table.of(key(request.head())?)
    }

    #[inline]
    fn may_retry(&self, context: &HttpContext) -> bool {
        context.may_retry
    }

    /// Looks up the header field of hedges here and not in `context`, because only hedge layers need it.
    #[inline]
    fn may_hedge(&self, context: &HttpContext, request: &Req) -> bool {
        context.may_hedge && !request.headers().contains_key(HEDGE_ATTEMPT)
    }

    #[inline]
    fn retry_override(&self, context: &HttpContext) -> Option<RetryOverride> {
        Some(context.overrides.as_ref()?.0)
    }

    #[inline]
    fn hedge_override(&self, context: &HttpContext) -> Option<HedgeOverride> {
        Some(context.overrides.as_ref()?.1)
    }

    fn expiry(&self, context: &HttpContext) -> Option<Deadline> {
        context.expiry
    }

    fn budget<'a>(&'a self, context: &'a HttpContext) -> Option<&'a Budget> {
        context.budget.as_ref()
    }

    #[inline]
    fn save(&self, request: &mut Req) -> Option<Req::Saved> {
        let limit = self.settings().and_then(|all| all.replay_limit);
        request.save(limit.unwrap_or(REPLAY_LIMIT))
    }

    fn again(&self, saved: &Req::Saved, attempt: Attempt) -> Option<Req> {
        Req::again(saved, attempt)
    }

    fn attempt_ended(&self, saved: &Req::Saved, attempt: Attempt, is_over: bool) -> bool {
        Req::attempt_ended(saved, attempt, is_over)
    }

    fn mark(&self, context: &mut HttpContext, attempt: Attempt, previous: u32, request: &mut Req) {
        match attempt.kind() {
            AttemptKind::Retry => context.nested.mark(request),
            AttemptKind::Hedge => {
                let number = HeaderValue::from(attempt.number());
                // If the header map has no room for the field, the request is sent without it.
                let _ = request.headers_mut().try_insert(HEDGE_ATTEMPT, number);
            }
            AttemptKind::Primary => {}
        }
        D::mark(context, previous, request);
    }

    fn is_retried_above(&self, context: &HttpContext) -> bool {
        context.nested.is_retried_above()
    }
}

impl<D, Req, Res, E> Outcomes<Req, Res, E> for D
where
    D: Dialect,
    Req: ReplayableRequest,
    Res: HttpResponse,
    E: 'static,
{
    #[inline]
    fn classify(
        &self,
        context: &HttpContext,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict {
        match outcome {
            Ok(response) if self.settings().is_none() && D::is_success(response) => {
                Verdict::Success
            }
            _ => {
                let judged = self.classify_outcome(context, attempt, outcome);
                decide(self, context, attempt, outcome, judged)
            }
        }
    }

    fn describe<'a>(&self, outcome: &'a Result<Res, E>) -> AttemptOutcome<'a> {
        match outcome {
            Ok(response) => AttemptOutcome::Response {
                http_status: Some(response.status().as_u16()),
                grpc_status: D::grpc_status(response),
            },
            Err(error) => AttemptOutcome::Error(chain(error).next()),
        }
    }

    /// The server may have processed an attempt that timed out, so only an idempotent request is resent.
    fn timed_out(
        &self,
        context: &HttpContext,
        attempt: &Attempt,
        answer: &Result<Res, E>,
    ) -> Verdict {
        let judged = Classified {
            verdict: Verdict::timeout(),
            rejected: false,
            code: D::timeout(),
        };
        decide(self, context, attempt, answer, judged)
    }

    fn backoff(
        &self,
        context: &HttpContext,
        attempt: &Attempt,
        retry: u32,
        outcome: &Result<Res, E>,
    ) -> Option<Duration> {
        let rule = self.settings()?.backoff.as_ref()?;
        let judged = self.classify_outcome(context, attempt, outcome);
        rule(retry, context.view(attempt, outcome, judged)?)
    }

    fn was_given_up(&self, context: &mut HttpContext, outcome: &Result<Res, E>) -> bool {
        context.nested.was_given_up(outcome)
    }

    fn is_recorded(&self, outcome: &Result<Res, E>, budget: &Budget) -> bool {
        let is_recorded = |response: &Res| Nested::is_recorded(response.extensions(), budget);
        outcome.as_ref().is_ok_and(is_recorded)
    }

    fn give_up(&self, context: &HttpContext, outcome: &mut Result<Res, E>, budget: &Budget) {
        let response = outcome.as_mut().ok().map(HttpResponse::extensions_mut);
        context.nested.give_up(response, budget);
    }

    fn attach<T: Clone + Send + Sync + 'static>(&self, outcome: &mut Result<Res, E>, info: T) {
        if let Ok(response) = outcome {
            response.extensions_mut().insert(info);
        }
    }
}
