use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Instant;

use super::{Check, Limits, Outcome, check::Waiting};
use crate::{
    Reason, Source,
    backend::{Answer, Backend, BackendError, Timeout},
    deny::{DenyCache, Denying},
    failover::{Access, Failover, Fallback},
    terms::Terms,
};

/// Maximum number of corrections in flight per limit: about the number of concurrent requests of a busy instance.
const MAX_CORRECTIONS: usize = 1024;

type SharedBackend = Arc<dyn Backend>;

/// Queries the backend, and handles its failures and its late answers.
///
/// The default methods are for a backend in this process, which normally neither fails nor answers later. The guard is
/// a trait object. So a binary with only such a backend usually contains no circuit breaker and no deny cache, unless
/// it sets a consistency.
pub(crate) trait BackendGuard: Send + Sync {
    /// Caches the rejections of a remote backend. `exact` is whether this guard queries the result directly, without
    /// leases and without local counts.
    fn cache(&mut self, backend: SharedBackend, _: Box<[Terms]>, _: bool) -> SharedBackend {
        backend
    }

    /// Decides on a check that has at least one charge, normally with a query of the backend.
    fn query(&self, limits: &Limits, check: &mut Check) -> Outcome {
        match check.acquire(&*limits.backend).immediate() {
            Ok(true) => Outcome::Pass { charged: true },
            Ok(false) => Outcome::Reject(Reason::Quota),
            Err(error) => limits.fail_over(check, error),
        }
    }

    /// Polls the answer of a backend that answers later.
    fn poll(&self, _: &Limits, _: &mut Check, _: &mut Context<'_>) -> Poll<Outcome> {
        unreachable!("a pending decision waits for something")
    }

    /// Decides in this process after a failure. For the default method, the failure is normally a late quota look-up:
    /// the backend then decides with the policies' own quotas.
    fn decide_locally(&self, limits: &Limits, check: &mut Check) -> Result<bool, BackendError> {
        for charge in &mut check.charges {
            charge.quota = None;
        }
        check.acquire(&*limits.backend).immediate()
    }

    /// Returns the limits with this process's share of each quota, if there are any.
    fn fallback(&self) -> Option<&Fallback> {
        None
    }

    /// Returns the time until the next probe, or `None` while the circuit is closed.
    fn open_for(&self) -> Option<Duration> {
        None
    }

    /// Handles the answer to a correction. If it comes later, usually waits for it in the background, for at most this
    /// timeout.
    fn finish(&self, _: Duration, _: Answer) {}

    /// Returns the number of lost corrections. A correction in flight does not count as lost.
    fn lost_corrections(&self) -> u64 {
        0
    }
}

/// The guard of a backend in this process, unless the user sets a consistency.
pub(super) struct Unguarded;

impl BackendGuard for Unguarded {}

/// The guard of a remote backend, and of any backend for which the user sets a consistency.
impl BackendGuard for Failover {
    fn cache(&mut self, inner: SharedBackend, terms: Box<[Terms]>, exact: bool) -> SharedBackend {
        let (cache, learns) = (Arc::new(DenyCache::new(terms)), !exact);
        self.deny_cache = exact.then(|| Arc::clone(&cache));
        Arc::new(Denying {
            inner,
            cache,
            learns,
        })
    }

    fn query(&self, limits: &Limits, check: &mut Check) -> Outcome {
        let permit = match self.permit() {
            Ok(permit) => permit,
            Err(_) if spend_lease(limits, check) => return Outcome::Pass { charged: true },
            Err(error) => return limits.fail_over(check, error),
        };
        let Some(permit) = self.recover(limits, check, permit) else {
            return Outcome::Reject(Reason::ReducedCapacity);
        };
        let deny_cache = self.deny_cache.as_ref();
        let sent = deny_cache.map(|cache| cache.sent(check.all_charges()));
        let allowed = match check.acquire(&*limits.backend) {
            Answer::Later(answer) => {
                self.answers_later();
                let since = sent.map_or_else(Instant::now, |sent| sent.at);
                let answer = Timeout::since(since, limits.timeout, answer);
                check.waiting = Some(Waiting::Backend(answer, permit, sent));
                return Outcome::Later;
            }
            answer => answer.immediate(),
        };
        if allowed.is_ok() {
            self.answered_immediately(permit);
        }
        self.complete(limits, check, permit, allowed)
    }

    fn poll(&self, limits: &Limits, check: &mut Check, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Some(Waiting::Backend(answer, permit, sent)) = &mut check.waiting else {
            unreachable!("a pending decision waits for something");
        };
        let (permit, sent) = (*permit, *sent);
        let allowed = match ready!(Pin::new(answer).poll(cx)) {
            // The check has one decision per charge since its request was sent.
            Ok(answer) if answer.decisions.len() == check.decisions.len() => {
                self.answered(permit, false);
                if let (Some(cache), Some(sent)) = (&self.deny_cache, sent) {
                    cache.learn(sent, check.all_charges(), &answer);
                }
                // Not moved, because `Decisions` are large.
                check.decisions.copy_from_slice(&answer.decisions);
                Ok(answer.allowed)
            }
            Ok(_) => Err(BackendError::new(
                "the answer does not have one decision per charge",
            )),
            Err(error) => Err(error),
        };
        Poll::Ready(self.complete(limits, check, permit, allowed))
    }

    fn decide_locally(&self, _: &Limits, check: &mut Check) -> Result<bool, BackendError> {
        let fallback = self.fallback.as_ref();
        let fallback = fallback.ok_or_else(BackendError::circuit_open)?;
        let allowed = decide_with(fallback, check)?;
        if allowed {
            for asked in &check.charges {
                fallback.keep(asked.rule, asked.charge(check.keys()));
            }
        }
        Ok(allowed)
    }

    fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }

    fn open_for(&self) -> Option<Duration> {
        self.open_for()
    }

    fn finish(&self, timeout: Duration, answer: Answer) {
        let lost = Arc::clone(&self.lost_corrections);
        let is_lost = match answer {
            Answer::Done(_) => false,
            Answer::Failed(_) => true,
            Answer::Later(answer) => {
                let correction = async move {
                    if Timeout::new(timeout, answer).await.is_err() {
                        lost.fetch_add(1, Relaxed);
                    }
                };
                !self
                    .corrections
                    .spawn(MAX_CORRECTIONS, Box::pin(correction))
            }
        };
        self.lost_corrections.fetch_add(is_lost.into(), Relaxed);
    }

    fn lost_corrections(&self) -> u64 {
        self.lost_corrections.load(Relaxed)
    }
}

impl Failover {
    /// Completes a check with the backend's answer. After an error, does not send the request again, because the
    /// backend may have charged it already.
    fn complete(
        &self,
        limits: &Limits,
        check: &mut Check,
        permit: Access,
        allowed: Result<bool, BackendError>,
    ) -> Outcome {
        if let Ok(true) = allowed {
            return Outcome::Pass { charged: true };
        }
        // The backend rejected the request or failed, so a charge to this process's share is refunded.
        if let (Access::Shared(_), Some(fallback)) = (permit, &self.fallback) {
            for asked in &check.charges {
                fallback.release(asked.rule, asked.charge(check.keys()));
            }
        }
        match allowed {
            Ok(_) => Outcome::Reject(Reason::Quota),
            Err(error) => {
                self.failed(permit, &error);
                limits.fail_over(check, error)
            }
        }
    }

    /// If this process has recently returned to the backend, usually reports the tokens that it has admitted alone for
    /// the request's keys, except under a leaky queue. While other processes may still decide alone, usually also
    /// charges the request to this process's share. Returns `None` if the share lacks tokens for the request. For a
    /// probe, does nothing.
    fn recover(&self, limits: &Limits, check: &mut Check, permit: Access) -> Option<Access> {
        let is_probe = matches!(permit, Access::Probe(_));
        let Some((fallback, is_shared)) = self.recovering().filter(|_| !is_probe) else {
            return Some(permit);
        };
        for asked in &check.charges {
            let charge = asked.charge(check.keys());
            let unreported = fallback.take_unreported(asked.rule, charge);
            let unreported = i64::try_from(unreported).unwrap_or(i64::MAX);
            limits.correct(Source::Backend, asked.rule, charge, unreported);
        }
        if !is_shared {
            return Some(permit);
        }
        match decide_with(fallback, check) {
            Ok(true) => Some(Access::Shared(permit.row())),
            Ok(false) => None,
            Err(_) => Some(permit),
        }
    }
}

/// While the circuit is open, tries to charge the request to a lease. Returns whether a lease paid for the request.
fn spend_lease(limits: &Limits, check: &mut Check) -> bool {
    let (Some(leasing), [asked]) = (&limits.leasing, check.charges.as_slice()) else {
        return false;
    };
    let charge = asked.charge(check.sink.bytes());
    check.decisions.reject(1);
    leasing.spend(&charge, &mut check.decisions[0])
}

/// Decides on a request with this process's share of each quota.
fn decide_with(fallback: &Fallback, check: &mut Check) -> Result<bool, BackendError> {
    check.decisions.reject(check.charges.len());
    let keys = check.sink.bytes();
    let charges = check.charges.iter();
    let charges = charges.map(|asked| (asked.rule, asked.charge(keys)));
    fallback.acquire(charges, &mut check.decisions)
}
