mod follow_up;
mod response_head;
mod stamp;

use std::sync::Arc;

use http::{
    Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{Entry, RETRY_AFTER},
};

pub(crate) use self::follow_up::FollowUp;
pub use self::response_head::ResponseHead;
pub(crate) use self::stamp::policies_of;
use self::{
    follow_up::Refund,
    stamp::{Stamp, state_of},
};
use crate::{
    Decided, RateLimitHandle, Reason, Rejection, RejectionResponse, ResponseHeaders,
    headers::{self, LatestRejection, RejectionValues},
    key::RequestParts,
    limits::{Check, Limits, Outcome, Rule},
};

/// A user's function that returns whether a request is exempt.
pub(crate) type Exempt = Box<dyn Fn(RequestParts<'_>) -> bool + Send + Sync>;

/// A user's function that returns whether to refund a request. The argument is the response, or `None` if the inner
/// service failed.
pub(crate) type RefundWhen = Arc<dyn Fn(Option<ResponseHead<'_>>) -> bool + Send + Sync>;

/// The type of [`HttpLimits::make_handle`].
type MakeHandle = fn(&HttpLimits, &Decided<'_>, bool, &mut Extensions) -> Option<Refund>;

/// Settings and state of one HTTP layer. All its services share them.
pub(crate) struct HttpLimits {
    pub(crate) limits: Arc<Limits>,
    pub(crate) answers: HttpSettings,
    /// The value of `RateLimit-Policy`. `None` if a policy has an `only_if`, a `quota_by` or a `quota_by_async`, or if
    /// all policies are hidden.
    pub(crate) policy_field: Option<HeaderValue>,
    pub(crate) latest: LatestRejection,
}

#[derive(Default)]
pub(crate) struct HttpSettings {
    pub(crate) fields: ResponseHeaders,
    pub(crate) x_ratelimit: bool,
    pub(crate) handle: bool,
    /// Set by the setters of handles and refunds. A binary that calls none of these setters usually lacks the code that
    /// makes handles.
    pub(crate) make_handle: Option<MakeHandle>,
    pub(crate) exempt: Vec<Exempt>,
    pub(crate) refund_when: Option<RefundWhen>,
}

impl HttpLimits {
    #[inline]
    pub(crate) fn decide<B>(&self, check: &mut Check, request: &Request<B>) -> Outcome {
        // A new view for each use, because copying a view that was just written takes longer.
        let head = || RequestParts::new(request);
        if self.answers.exempt.iter().any(|exempt| exempt(head())) {
            return Outcome::Pass { charged: false };
        }
        let apply = |rule: &Rule, sink: &mut _, asked: &mut _| rule.apply(head(), sink, asked);
        self.limits.decide(check, apply)
    }

    /// Returns the headers for the response to a request that passes, if the response gets any.
    #[inline]
    fn stamp(self: &Arc<Self>, decided: Decided<'_>) -> Option<Stamp> {
        let answers = &self.answers;
        // A shadow limit is invisible to clients.
        let report = !self.limits.shadow
            && match answers.fields {
                ResponseHeaders::Always => true,
                ResponseHeaders::NearLimit(share) => self.is_near(decided, share),
                ResponseHeaders::OnRejection | ResponseHeaders::Never => false,
            };
        let stamp = || Stamp::new(self, decided, state_of(decided));
        report.then(stamp).flatten()
    }

    /// Inserts a handle into a request that passes, if the layer has handles. Returns the remaining work on the
    /// response.
    #[inline]
    pub(crate) fn follow_up<B>(
        self: &Arc<Self>,
        check: &Check,
        charged: bool,
        request: &mut Request<B>,
    ) -> FollowUp {
        let decided = Decided::new(&self.limits.rules, check);
        let make_handle = self.answers.make_handle;
        FollowUp {
            refund: make_handle
                .and_then(|make| make(self, &decided, charged, request.extensions_mut())),
            stamp: if charged { self.stamp(decided) } else { None },
        }
    }

    /// Inserts the handle if the setting `handle` is set, even for an exempt or uncharged request. Returns the pending
    /// refund, if there is one.
    pub(crate) fn make_handle(
        &self,
        decided: &Decided<'_>,
        charged: bool,
        extensions: &mut Extensions,
    ) -> Option<Refund> {
        let answers = &self.answers;
        if !answers.handle && !charged {
            return None;
        }
        let handle = RateLimitHandle::new(&self.limits, decided, charged);
        if answers.handle {
            let outer = extensions.remove();
            extensions.insert(handle.clone().within(outer));
        }
        let refund_when = Arc::clone(answers.refund_when.as_ref()?);
        Some(Box::new(move |response: Option<ResponseHead<'_>>| {
            if refund_when(response) {
                handle.settle(0);
            }
        }))
    }

    fn is_near(&self, decided: Decided<'_>, share: f64) -> bool {
        decided.charges().any(|(asked, decision)| {
            let rule = &self.limits.rules[asked.rule];
            // Rounded up, so that the headers appear too early rather than too late.
            let near = (rule.shown(rule.quota(asked)).burst_size() as f64 * share).ceil();
            !rule.policy.hidden && decision.remaining as f64 <= near
        })
    }

    /// Returns the response to a rejected request. Adds `Retry-After` if the wait is known and the response has no
    /// retry hint. Adds the `RateLimit` headers, unless the settings forbid them or [`Stamp::new`] returns `None`.
    pub(crate) fn rejection<B>(
        self: &Arc<Self>,
        reject: &impl RejectionResponse<B>,
        reason: Reason,
        check: &Check,
    ) -> Response<B> {
        let rejection = Rejection::new(&self.limits.rules, check, reason);
        let mut response = reject.response(&rejection);
        let decided = rejection.decided();
        let build = || RejectionValues {
            retry_after: rejection.retry_after().map(headers::retry_after),
            state: match self.answers.fields {
                ResponseHeaders::Never => None,
                _ => state_of(decided),
            },
        };
        let values = match decided.only_rejection() {
            Some((rule, one)) => self.latest.values((rule, headers::numbers(one)), build),
            None => build(),
        };
        let fields = response.headers_mut();
        if let Some(value) = values.retry_after
            && !reject.has_retry_hint()
            && let Ok(Entry::Vacant(entry)) = fields.try_entry(RETRY_AFTER)
        {
            let _ = entry.try_insert(value);
        }
        if let Some(stamp) = Stamp::new(self, decided, values.state) {
            stamp.put_on(fields);
        }
        response
    }
}

/// Appends a header, and keeps the response's headers of the same name. If the map is full, the header is dropped.
fn put(fields: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = fields.try_append(name, value);
}
