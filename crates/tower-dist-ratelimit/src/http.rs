mod follow_up;
mod response_head;
mod stamp;

use std::{sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{Entry, RETRY_AFTER},
};

pub(crate) use self::follow_up::FollowUp;
pub use self::response_head::ResponseHead;
use self::{follow_up::Refund, stamp::Stamp};
use crate::{
    Decided, Observer, RateLimitHandle, Reason, Rejection, RejectionResponse, ResponseHeaders,
    backend::Answer,
    headers,
    key::{KeySink, RequestParts},
    ladder::Leave,
    limits::{Limits, Outcome, Question, Rule, Short, Waiting},
};

/// Whether a request is left alone.
pub(crate) type Exempt = Box<dyn Fn(RequestParts<'_>) -> bool + Send + Sync>;

/// Whether a request costs nothing after all, now that it is answered.
pub(crate) type RefundWhen = Box<dyn Fn(Option<ResponseHead<'_>>) -> bool + Send + Sync>;

/// The settings and the state of one layer over HTTP, shared by all its services.
pub(crate) struct HttpLimits {
    pub(crate) limits: Arc<Limits>,
    pub(crate) answers: Answers,
    /// See [`HttpLimits::only_rule`].
    pub(crate) short: bool,
    /// A constant, unless quotas differ from key to key.
    pub(crate) policy_field: Option<HeaderValue>,
}

/// How requests are treated, and what clients are told.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) fields: ResponseHeaders,
    pub(crate) x_ratelimit: bool,
    pub(crate) shadow: bool,
    pub(crate) handle: bool,
    pub(crate) exempt: Vec<Exempt>,
    pub(crate) refund_when: Option<RefundWhen>,
}

/// What to do with a request, if that is known already.
pub(crate) enum Ruling {
    Pass(Passed),
    Reject(Reason),
    Later(Waiting),
}

/// What a request that passes takes along.
#[derive(Default)]
pub(crate) struct Passed {
    stamp: Option<Stamp>,
    handle: Option<RateLimitHandle>,
}

impl HttpLimits {
    /// Asks the store about a request.
    pub(crate) fn decide<O: Observer>(
        self: &Arc<Self>,
        question: &mut Question,
        head: RequestParts<'_>,
        observer: &O,
    ) -> Ruling {
        if self.exempts(head) {
            return Ruling::Pass(self.uncharged(question));
        }
        let limits = &self.limits;
        let outcome = limits.decide(question, observer, |rule, sink| rule.look(head, sink));
        self.rule(outcome, question, observer)
    }

    fn exempts(&self, head: RequestParts<'_>) -> bool {
        self.answers.exempt.iter().any(|exempt| exempt(head))
    }

    /// Whether requests can go the shortest way, and then by which policy: if there is one, with a fixed quota, and nothing
    /// is to be known of a request later on.
    pub(crate) fn only_rule(&self) -> Option<&Rule> {
        if self.short {
            self.limits.rules.first()
        } else {
            None
        }
    }

    /// The shortest way.
    pub(crate) fn decide_shortly<B, O: Observer>(
        self: &Arc<Self>,
        rule: &Rule,
        request: &Request<B>,
        observer: &O,
        question: &mut Option<Question>,
    ) -> Short<Option<Stamp>> {
        // Made for each use: a copy has to wait until the first is written, which takes longer.
        let head = || RequestParts::new(request);
        let look = |sink: &mut KeySink| {
            if self.exempts(head()) {
                return Err(Short::Pass(None));
            }
            let key = rule.key(head(), sink);
            let key = key.map_err(|applies| Short::unasked(&applies))?;
            Ok((key, rule.policy.cost.of(head())))
        };
        let limits = &self.limits;
        limits.decide_shortly(rule, observer, question, look, |decided| {
            self.stamp(decided)
        })
    }

    /// The long way, from where the shortest one ends.
    pub(crate) fn answered<O: Observer>(
        self: &Arc<Self>,
        question: &mut Question,
        answer: Answer,
        leave: Leave,
        observer: &O,
    ) -> Ruling {
        let limits = &self.limits;
        let outcome = limits.outcome(question, answer, leave, observer);
        self.rule(outcome, question, observer)
    }

    /// What an outcome means in this layer.
    pub(crate) fn rule<O: Observer>(
        self: &Arc<Self>,
        outcome: Outcome,
        question: &Question,
        observer: &O,
    ) -> Ruling {
        match outcome {
            Outcome::Pass => {
                observer.allowed(&Decided::new(&self.limits, question));
                tell_delay(observer, question);
                Ruling::Pass(self.passed(question))
            }
            Outcome::Reject(reason) if self.answers.shadow => {
                observer.shadowed(&Rejection::new(&self.limits, question, reason));
                Ruling::Pass(self.uncharged(question))
            }
            Outcome::Reject(reason) => {
                observer.rejected(&Rejection::new(&self.limits, question, reason));
                Ruling::Reject(reason)
            }
            Outcome::Later(waiting) => Ruling::Later(waiting),
        }
    }

    #[inline]
    fn passed(self: &Arc<Self>, question: &Question) -> Passed {
        let answers = &self.answers;
        let handle = (answers.handle || answers.refund_when.is_some())
            .then(|| RateLimitHandle::new(&self.limits, question));
        Passed {
            stamp: self.stamp(Decided::new(&self.limits, question)),
            handle,
        }
    }

    /// Who looks for a handle finds one, whatever lets the request pass.
    fn uncharged(&self, question: &Question) -> Passed {
        let handle = || RateLimitHandle::uncharged(&self.limits, question);
        Passed {
            stamp: None,
            handle: self.answers.handle.then(handle),
        }
    }

    /// How long a request that passes has to wait before it does. A shadow lets nobody wait.
    pub(crate) fn delay(&self, question: &Question) -> Duration {
        if self.answers.shadow {
            Duration::ZERO
        } else {
            question.delay()
        }
    }

    /// The fields for the response to a request that passes, if it gets any.
    fn stamp(self: &Arc<Self>, decided: Decided<'_>) -> Option<Stamp> {
        let answers = &self.answers;
        // Who is not limited yet is not told of limits.
        let tell = !answers.shadow
            && match answers.fields {
                ResponseHeaders::Always => true,
                ResponseHeaders::NearLimit(share) => self.is_near(decided, share),
                ResponseHeaders::OnRejection | ResponseHeaders::Never => false,
            };
        if tell {
            Stamp::new(self, decided)
        } else {
            None
        }
    }

    /// Gives a request what it takes along, and says what is left to do when it is answered.
    #[inline]
    pub(crate) fn attach<B>(
        self: &Arc<Self>,
        passed: Passed,
        request: &mut Request<B>,
    ) -> FollowUp {
        let Passed { stamp, handle } = passed;
        let refund = handle.and_then(|handle| {
            if self.answers.handle {
                let extensions = request.extensions_mut();
                let outer = extensions.remove();
                extensions.insert(handle.clone().within(outer));
            }
            let http = Arc::clone(self);
            let refunds = self.answers.refund_when.is_some();
            refunds.then(|| Box::new(Refund { http, handle }))
        });
        FollowUp { stamp, refund }
    }

    fn is_near(&self, decided: Decided<'_>, share: f64) -> bool {
        decided.asked().any(|(asked, decision)| {
            let quota = self.limits.rules[asked.rule].quota(asked);
            decision.remaining <= near(quota.burst_size(), share)
        })
    }

    /// The response to a request that must not pass: what the strategy makes, with what every rejection has.
    pub(crate) fn rejection<B>(
        self: &Arc<Self>,
        reject: &impl RejectionResponse<B>,
        reason: Reason,
        question: &Question,
    ) -> Response<B> {
        let rejection = Rejection::new(&self.limits, question, reason);
        let mut response = reject.response(&rejection);
        let fields = response.headers_mut();
        if let Some(wait) = rejection.retry_after()
            && !reject.says_when()
            && let Ok(Entry::Vacant(entry)) = fields.try_entry(RETRY_AFTER)
        {
            let _ = entry.try_insert(headers::retry_after(wait));
        }
        if self.answers.fields != ResponseHeaders::Never
            && let Some(stamp) = Stamp::new(self, rejection.decided())
        {
            stamp.put_on(fields);
        }
        response
    }
}

/// A wait that is known beforehand.
pub(crate) fn tell_delay(observer: &impl Observer, question: &Question) {
    let delay = question.delay();
    if !delay.is_zero() {
        observer.waited(delay);
    }
}

/// Appends, so that what an inner service has said stays; unless the message has as many fields as it can have.
fn put(fields: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let _ = fields.try_append(name, value);
}

/// This share of the burst, rounded up: rather told too early than too late.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to the burst, and `as` saturates"
)]
fn near(burst: u64, share: f64) -> u64 {
    (burst as f64 * share).ceil() as u64
}
