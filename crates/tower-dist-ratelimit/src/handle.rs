mod meter;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use smallvec::SmallVec;
use tokio::time::Instant;

pub use meter::{Meter, MeteredBody};

use crate::{Decided, Decision, backend::OwnedCharge, limits::Limits};

/// A handle of a request's charge, with which a service corrects the cost later. A layer built with
/// [`handle`](crate::RateLimitLayerBuilder::handle) inserts the handle into the request's extensions.
///
/// Reserve first, settle later: the policy's [cost](crate::Policy::cost) reserves the tokens that the request may
/// need. [`settle`](Self::settle) corrects the charge to the tokens that the request used. A [`Meter`] settles when it
/// is dropped, so it also settles when a streaming response is dropped half-way. [`Meter::body`] wraps a body with such
/// a meter. Without a correction the charge stays unchanged.
///
/// A correction applies to all policies that [`decisions`](Self::decisions) returns. If policies count different
/// things, select one of them with [`policy`](Self::policy). If several layers have handles, the request carries one
/// handle for all of them. Clones of a handle share the charge.
///
/// Every request that passes a layer with handles has a handle. The handle corrects nothing for a layer that
/// [exempts](crate::RateLimitLayerBuilder::exempt) the request, or admits it by
/// [`FailureMode::Open`](crate::FailureMode::Open). It also corrects nothing for a layer that lets a rejected request
/// pass because of [shadow](crate::RateLimitLayerBuilder::shadow) mode.
///
/// In [`Memory`](crate::backend::Memory) a correction is immediate. With a remote backend it usually runs in the
/// background, with the layer's [`backend_timeout`](crate::RateLimitLayerBuilder::backend_timeout). At most 1024
/// corrections of a layer run concurrently. The layer [counts](crate::RateLimitLayer::lost_corrections) lost
/// corrections. If the [local fallback](crate::FailureMode) made the charge, only the local fallback is corrected.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitHandle, RateLimitLayer, backend::Memory};
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     // The length of the response is unknown, so each request reserves 500 tokens.
///     .limit(Policy::new("tokens", Quota::per_minute(10_000)).cost(500))
///     .handle()
///     .build()?;
/// let service = layer.layer(service_fn(async |request: Request<()>| {
///     let handle: &RateLimitHandle = request.extensions().get().expect("the layer inserts it");
///     // The response took 120 tokens, so 380 return.
///     handle.settle(120);
///     Ok::<_, std::convert::Infallible>(Response::new(Bytes::new()))
/// }));
/// service.clone().oneshot(Request::new(())).await?;
/// // The next request reserves 500 again. The first one has used 120.
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(response.headers()["ratelimit"], r#""tokens";r=9380;t=4"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimitHandle {
    /// Charges of policies that decided. Policies of the layer nearest to the service come first.
    charges: SmallVec<[Arc<HandleCharge>; 1]>,
}

/// The charge of one policy.
struct HandleCharge {
    limits: Arc<Limits>,
    /// The index of the policy in the layer.
    rule: usize,
    charge: OwnedCharge,
    decision: Decision,
    /// The approximate time at which the charge leaves its window. A refund after that gives nothing back. `None` for
    /// buckets and leaky queues.
    window_end: Option<Instant>,
    /// The cost, with the corrections so far. `None` after a settlement, and for a rejected request that passes in
    /// shadow mode.
    charged: Mutex<Option<u64>>,
}

impl RateLimitHandle {
    /// Returns the handle of a request that passes.
    pub(crate) fn new(limits: &Arc<Limits>, decided: &Decided<'_>, charged: bool) -> Self {
        let charges = decided.charges().map(|(asked, decision)| {
            let has_windows = limits.rules[asked.rule].policy.algorithm().has_windows();
            let window_end = has_windows.then(|| Instant::now().checked_add(decision.reset_after));
            Arc::new(HandleCharge {
                limits: Arc::clone(limits),
                rule: asked.rule,
                charge: OwnedCharge::of(&asked.charge(decided.check.keys())),
                decision: *decision,
                window_end: window_end.flatten(),
                charged: Mutex::new(charged.then_some(asked.cost)),
            })
        });
        let charges = charges.collect();
        Self { charges }
    }

    /// Adds the charges of the outer layers.
    pub(crate) fn within(mut self, outer: Option<Self>) -> Self {
        // Pushed one by one, because `extend` takes two kilobytes of code.
        for charge in outer.iter().flat_map(|outer| &outer.charges) {
            self.charges.push(Arc::clone(charge));
        }
        self
    }

    /// Returns the decisions on the request by all layers that were built with
    /// [`handle`](crate::RateLimitLayerBuilder::handle), each with the name of its policy. Policies of the layer
    /// nearest to the service come first. Empty if no policy decided. A handle from [`policy`](Self::policy) returns
    /// only the selected policy.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let charges = self.charges.iter();
        charges.map(|charge| (charge.policy(), &charge.decision))
    }

    /// Returns a handle of the policy `name` alone. If [`decisions`](Self::decisions) returns several policies of this
    /// name, selects the policy of the layer nearest to the service. Returns `None` if `decisions` returns no policy of
    /// this name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<Self> {
        let mut charges = self.charges.iter();
        let charge = charges.find(|charge| charge.policy() == name)?;
        Some(Self {
            charges: [Arc::clone(charge)].into(),
        })
    }

    /// Charges `tokens` more. Has no effect after [`settle`](Self::settle).
    ///
    /// If fewer tokens are free, the key goes into debt, and later requests can be rejected for longer. A fixed window
    /// forgets the debt when the window ends.
    pub fn charge(&self, tokens: u64) {
        self.correct(|charged| charged.saturating_add(tokens), false);
    }

    /// Refunds `tokens`, at most the charged tokens. Has no effect after [`settle`](Self::settle). Under a window or
    /// log algorithm, a refund usually has no effect once the charge no longer counts, for example after a fixed window
    /// has ended.
    pub fn refund(&self, tokens: u64) {
        self.correct(|charged| charged.saturating_sub(tokens), false);
    }

    /// Sets the total cost of the request, in tokens. Refunds the charged tokens above `actual`, or charges the missing
    /// ones. For each policy, only the first call has an effect. Under a window or log algorithm, usually nothing is
    /// refunded once the charge no longer counts, for example after a fixed window has ended.
    pub fn settle(&self, actual: u64) {
        self.correct(|_| actual, true);
    }

    /// Returns a counter of used tokens. When the counter is dropped, it settles the request.
    pub fn meter(&self) -> Meter {
        Meter {
            handle: self.clone(),
            used: 0,
        }
    }

    fn correct(&self, to: impl Fn(u64) -> u64, settle: bool) {
        for charge in &self.charges {
            charge.correct(&to, settle);
        }
    }
}

impl HandleCharge {
    fn policy(&self) -> &str {
        &self.limits.rules[self.rule].name
    }

    /// Corrects the number of charged tokens to the result of `to`, if a correction is still possible. The lock keeps
    /// two concurrent corrections from starting with the same number.
    fn correct(&self, to: impl Fn(u64) -> u64, settle: bool) {
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = *charged else {
            return;
        };
        let mut after = to(before);
        if after < before && self.window_end.is_some_and(|end| Instant::now() >= end) {
            after = before;
        }
        *charged = (!settle).then_some(after);
        drop(charged);
        let delta = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
        let delta = if after < before { -delta } else { delta };
        // A refund gives back at most the cost of the charge.
        let charge = self.charge.charge(before);
        self.limits
            .correct(self.decision.source, self.rule, charge, delta);
    }
}

impl fmt::Debug for RateLimitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.decisions()).finish()
    }
}
