mod meter;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use smallvec::SmallVec;
use tokio::time::Instant;

pub use meter::{Meter, MeteredBody};

use crate::{Decided, Decision, backend::OwnedCharge, limits::Limits};

/// The charge of a request, for services that learn its real cost later. A layer built with
/// [`handle`](crate::RateLimitLayerBuilder::handle) inserts it into the request's extensions.
///
/// Reserve first, settle later: the policy's [cost](crate::Policy::cost_fn) reserves the tokens that the request may need, and
/// [`settle`](Self::settle) corrects the charge to the tokens that it used. A [`Meter`] settles when it is dropped, so also
/// when a streaming response is dropped half-way. [`Meter::body`] wraps a body with such a meter. Without a correction the
/// charge stays.
///
/// A handle corrects all policies of its request together; [`policy`](Self::policy) selects one of them, for policies that
/// count different things. If several layers have handles, the request carries one handle for all of them. Clones are
/// handles of the same request.
///
/// Every request that passes a layer with handles has a handle. It has nothing to correct if no policy applies, as to
/// [exempt](crate::RateLimitLayerBuilder::exempt) requests, or if a [shadow](crate::RateLimitLayerBuilder::shadow) charged nothing.
///
/// In [`Memory`](crate::backend::Memory) a correction is exact and immediate. With a remote backend it runs in the
/// background, with the layer's timeout; at most 1024 corrections of a layer run concurrently. The layer
/// [counts](crate::RateLimitLayer::lost_corrections) lost corrections. A charge that was decided [without the
/// backend](crate::FailureMode) is corrected in the local fallback.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
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
/// service.oneshot(Request::new(())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimitHandle {
    /// One per policy, starting with the nearest layer.
    charges: SmallVec<[Arc<HandleCharge>; 1]>,
}

/// The charge of one policy.
struct HandleCharge {
    limits: Arc<Limits>,
    /// The number of the policy in the layer.
    rule: usize,
    charge: OwnedCharge,
    decision: Decision,
    /// The end of the charge's window; `None` for buckets.
    window_end: Option<Instant>,
    /// The charged tokens; `None` once the charge is settled.
    charged: Mutex<Option<u64>>,
}

impl RateLimitHandle {
    /// The handle of an allowed request.
    pub(crate) fn new(limits: &Arc<Limits>, decided: &Decided<'_>, charged: bool) -> Self {
        let charges = decided.charges().map(|(asked, decision)| {
            let has_windows = limits.rules[asked.rule].policy.algorithm().has_windows();
            let window_end = has_windows.then(|| Instant::now().checked_add(decision.reset_after));
            Arc::new(HandleCharge {
                limits: Arc::clone(limits),
                rule: asked.rule,
                charge: OwnedCharge::of(&asked.charge(decided.keys())),
                decision: *decision,
                window_end: window_end.flatten(),
                charged: Mutex::new(charged.then_some(asked.cost)),
            })
        });
        Self {
            charges: charges.collect(),
        }
    }

    /// Adds the charges of the layers above.
    pub(crate) fn within(mut self, outer: Option<Self>) -> Self {
        self.charges
            .extend(outer.into_iter().flat_map(|outer| outer.charges));
        self
    }

    /// The name and the decision of each policy that decided on the request, starting with the nearest layer. Empty if no
    /// policy applies.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let charges = self.charges.iter();
        charges.map(|charge| (charge.policy(), &charge.decision))
    }

    /// The handle of one policy, in the nearest layer that has a policy with this name. `None` if the policy did not decide
    /// on the request.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<Self> {
        let mut charges = self.charges.iter();
        let charge = charges.find(|charge| charge.policy() == name)?;
        Some(Self {
            charges: [Arc::clone(charge)].into(),
        })
    }

    /// Charges `tokens` more, also if the bucket lacks them: later requests wait longer. Has no effect after
    /// [`settle`](Self::settle).
    pub fn charge(&self, tokens: u64) {
        self.correct(|charged| charged.saturating_add(tokens), false);
    }

    /// Returns `tokens`, at most the charge. Has no effect after [`settle`](Self::settle), or after the window of the charge
    /// has ended.
    pub fn refund(&self, tokens: u64) {
        self.correct(|charged| charged.saturating_sub(tokens), false);
    }

    /// Sets the total cost of the request: returns unused tokens, or charges missing ones. Only the first call has an effect.
    pub fn settle(&self, actual: u64) {
        self.correct(|_| actual, true);
    }

    /// A counter that settles the request when it is dropped.
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

    /// Changes the charge. The lock makes each correction count once.
    fn correct(&self, to: impl Fn(u64) -> u64, settle: bool) {
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = *charged else {
            return;
        };
        let after = to(before);
        *charged = (!settle).then_some(after);
        drop(charged);
        if after < before && self.window_end.is_some_and(|end| Instant::now() >= end) {
            return;
        }
        let delta = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
        let delta = if after < before { -delta } else { delta };
        // A refund returns at most the cost of the charge.
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
