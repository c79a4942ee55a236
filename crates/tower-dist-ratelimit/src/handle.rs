mod meter;

use std::{
    fmt, iter,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;

pub use meter::{Meter, MeteredBody};

use crate::{
    Decided, Decision,
    limits::{Asked, Limits},
};

/// What a request was charged, for those who find out later what it really costs. A layer built with
/// [`handle`](crate::RateLimitLayerBuilder::handle) puts it among the request's extensions.
///
/// Reserve now, settle later: the policy's [cost](crate::Policy::cost_fn) is what the request may need, and
/// [`settle`](Self::settle) corrects that to what it took. A [`Meter`] does so when it is dropped, and so also when a
/// response that streams is dropped half-way; [`Meter::body`] wraps one that does it all by itself. What nobody corrects stays as
/// it was charged.
///
/// Clones are handles of the same request. Its limits are corrected together; [`policy`](Self::policy) is the handle of
/// one of them, for policies that count different things. Where several layers on the way have handles, the one that is found is
/// that of all of them.
///
/// Every request that a layer with handles lets pass has one. There is nothing in it to correct if no policy applies, as to
/// [exempt](crate::RateLimitLayerBuilder::exempt) requests, or if a [shadow](crate::RateLimitLayerBuilder::shadow) lets pass what
/// was charged nothing.
///
/// A correction is exact and made at once in [`Memory`](crate::backend::Memory). One that has to travel does so in the
/// background: at most 1024 at a time for one layer, each with the layer's deadline. What does not arrive is
/// [counted](crate::RateLimitLayer::lost_corrections). What was [decided without the store](crate::FailureMode) is corrected
/// where it was charged, if it was.
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
///     // Nobody knows yet how long the answer will be: 500 tokens are reserved.
///     .limit(Policy::new("tokens", Quota::per_minute(10_000)).cost(500))
///     .handle()
///     .build()?;
/// let service = layer.layer(service_fn(async |request: Request<()>| {
///     let handle: &RateLimitHandle = request.extensions().get().expect("the layer puts it there");
///     // It was shorter.
///     handle.settle(120);
///     Ok::<_, std::convert::Infallible>(Response::new(Bytes::new()))
/// }));
/// service.oneshot(Request::new(())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimitHandle {
    bill: Arc<Bill>,
    /// The number of the only account that this handle is about.
    only: Option<usize>,
    /// That of the next layer above that has one.
    outer: Option<Arc<Self>>,
}

struct Bill {
    limits: Arc<Limits>,
    keys: Box<[u8]>,
    accounts: Vec<Account>,
}

/// One policy's part.
struct Account {
    asked: Asked,
    decision: Decision,
    /// When nothing counts any more of what was charged; none of buckets, whose tokens others wait for.
    over: Option<Instant>,
    charged: Mutex<Charged>,
}

struct Charged {
    tokens: u64,
    settled: bool,
}

impl RateLimitHandle {
    /// Of a request that passes. One that was not charged has nothing to correct.
    pub(crate) fn new(limits: &Arc<Limits>, decided: &Decided<'_>, charged: bool) -> Self {
        let accounts = decided.asked().map(|(asked, decision)| Account {
            asked: asked.clone(),
            decision: *decision,
            over: over(limits, asked, decision),
            charged: Mutex::new(Charged {
                tokens: asked.cost,
                settled: !charged,
            }),
        });
        Self {
            bill: Arc::new(Bill {
                limits: Arc::clone(limits),
                keys: decided.keys().into(),
                accounts: accounts.collect(),
            }),
            only: None,
            outer: None,
        }
    }

    /// The handle of all that this one and the layer above are about.
    pub(crate) fn within(self, outer: Option<Self>) -> Self {
        let outer = outer.map(Arc::new);
        Self { outer, ..self }
    }

    /// The decision of each policy that was asked, with its name; of several layers the nearest first. Empty if no policy
    /// applies to the request.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.layers().flat_map(|layer| {
            layer.accounts().map(|account| {
                let rule = &layer.bill.limits.rules[account.asked.rule];
                (&*rule.name, &account.decision)
            })
        })
    }

    /// The handle of the policy of this name alone, in the nearest layer that has one; `None` if it was not asked.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<Self> {
        self.layers().find_map(|layer| {
            let Bill {
                limits, accounts, ..
            } = &*layer.bill;
            let is_named = |number: &usize| {
                let rule = accounts[*number].asked.rule;
                &*limits.rules[rule].name == name
            };
            Some(Self {
                bill: Arc::clone(&layer.bill),
                only: Some(layer.bounds().find(is_named)?),
                outer: None,
            })
        })
    }

    /// Takes more tokens than were reserved, also when they are not there: then what follows waits longer. Of no effect
    /// once the request is settled.
    pub fn charge(&self, tokens: u64) {
        self.correct(|charged| charged.saturating_add(tokens), false);
    }

    /// Puts tokens back, at most what was charged. Of no effect once the request is settled, and once the window is over in which
    /// it was charged: the next one has nothing of it.
    pub fn refund(&self, tokens: u64) {
        self.correct(|charged| charged.saturating_sub(tokens), false);
    }

    /// Says what the request has cost in all, and closes the account: what was reserved beyond it is put back, what is
    /// missing is taken. Only the first one counts.
    pub fn settle(&self, actual: u64) {
        self.correct(|_| actual, true);
    }

    /// A counter that settles when it is dropped.
    pub fn meter(&self) -> Meter {
        Meter::new(self.clone())
    }

    fn layers(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |layer| layer.outer.as_deref())
    }

    fn bounds(&self) -> Range<usize> {
        match self.only {
            Some(number) => number..number + 1,
            None => 0..self.bill.accounts.len(),
        }
    }

    fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.bill.accounts[self.bounds()].iter()
    }

    fn correct(&self, to: impl Fn(u64) -> u64, settle: bool) {
        for layer in self.layers() {
            layer.correct_own(&to, settle);
        }
    }

    fn correct_own(&self, to: impl Fn(u64) -> u64, settle: bool) {
        let Bill { limits, keys, .. } = &*self.bill;
        for account in self.accounts() {
            let Some((before, after)) = account.correct(&to, settle) else {
                continue;
            };
            if after < before && account.over.is_some_and(|over| Instant::now() >= over) {
                continue;
            }
            // A refund gives back at most what the charge says.
            let mut charge = account.asked.charge(keys);
            charge.cost = before;
            let source = account.decision.source;
            limits.correct(
                source,
                account.asked.rule,
                charge,
                difference(before, after),
            );
        }
    }
}

impl Account {
    /// How many tokens it had and has, unless it is settled. The lock makes each correction count once.
    fn correct(&self, to: impl Fn(u64) -> u64, settle: bool) -> Option<(u64, u64)> {
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        if charged.settled {
            return None;
        }
        charged.settled = settle;
        let before = charged.tokens;
        charged.tokens = to(before);
        Some((before, charged.tokens))
    }
}

/// When the windows are over that this was counted in.
fn over(limits: &Limits, asked: &Asked, decision: &Decision) -> Option<Instant> {
    if limits.rules[asked.rule].policy.algorithm().has_windows() {
        Instant::now().checked_add(decision.reset_after)
    } else {
        None
    }
}

fn difference(before: u64, after: u64) -> i64 {
    if after >= before {
        i64::try_from(after - before).unwrap_or(i64::MAX)
    } else {
        i64::try_from(before - after).map_or(i64::MIN, |less| -less)
    }
}

impl fmt::Debug for RateLimitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.decisions()).finish()
    }
}
