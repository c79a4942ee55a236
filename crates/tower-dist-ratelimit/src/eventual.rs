mod ledger;

use std::{
    slice,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    runtime,
    task::JoinSet,
    time::{Instant, sleep},
};

pub(crate) use self::ledger::Ledger;
use crate::{
    BuildError, Decision, Policy, Quota, Source,
    algorithm::saturating_nanos,
    backend::{Answer, Backend, BackendError, Bounded, BoxFuture, Capabilities, Charge, PolicyId},
};

/// Decides locally and reports usage to the backend afterwards. The instance knows the usage of other
/// instances as of the last exchange.
pub(crate) struct PostPaid {
    inner: Arc<dyn Backend>,
    ledger: Arc<Ledger>,
    created: Instant,
    period: Duration,
    deadline: Duration,
    /// One task per recently used key. The tasks are aborted when this is dropped.
    exchanges: Mutex<JoinSet<()>>,
}

/// Exchanges the usage of one key between the ledger and the backend.
struct Exchange {
    inner: Arc<dyn Backend>,
    ledger: Arc<Ledger>,
    policy: PolicyId,
    number: usize,
    key: Box<[u8]>,
    deadline: Duration,
    /// Whether the task ended because the key was idle.
    over: bool,
}

/// If the task ends early, because its runtime shuts down or the backend panics, the next request starts another.
impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.over {
            self.ledger.forget(self.number, &self.key);
        }
    }
}

impl PostPaid {
    /// Wraps a backend that knows the policies of this ledger.
    pub(crate) fn new(
        inner: Arc<dyn Backend>,
        ledger: Ledger,
        period: Duration,
        deadline: Duration,
    ) -> Self {
        Self {
            inner,
            ledger: Arc::new(ledger),
            created: Instant::now(),
            period,
            deadline,
            exchanges: Mutex::default(),
        }
    }

    /// Returns the wait between the first exchange and the second: less than a period. It separates instances
    /// whose first requests arrive together, which would otherwise overdraw together in every period. The
    /// wait depends on the time of the request: it is as good as random, and reproducible.
    fn phase(&self) -> Duration {
        let now = saturating_nanos(self.created.elapsed());
        // A step of SplitMix64.
        let mixed = (now ^ now >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let thousandths = u32::try_from(mixed >> 32).unwrap_or_default() % 1_000;
        self.period * thousandths / 1_000
    }

    /// Spawns a task that exchanges the usage of a key until the key is idle for a period.
    #[cold]
    fn exchange(&self, number: usize, charge: &Charge<'_>, runtime: &runtime::Handle) {
        let exchange = Exchange {
            inner: Arc::clone(&self.inner),
            ledger: Arc::clone(&self.ledger),
            policy: charge.policy,
            number,
            key: charge.key.into(),
            deadline: self.deadline,
            over: false,
        };
        let mut exchanges = self
            .exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while exchanges.try_join_next().is_some() {}
        exchanges.spawn_on(exchange.go_on(self.phase(), self.period), runtime);
    }
}

impl Exchange {
    /// Exchanges once per period until the key is idle for a period. The first wait is shorter.
    async fn go_on(mut self, first: Duration, period: Duration) {
        let mut wait = first;
        while self.ledger.goes_on(self.number, &self.key) {
            self.once().await;
            sleep(wait).await;
            wait = period;
        }
        self.over = true;
    }

    fn charge(&self, cost: u64, quota: Option<Quota>) -> Charge<'_> {
        Charge {
            quota,
            ..Charge::new(self.policy, &self.key, cost)
        }
    }

    /// Reports the usage of this instance, and adopts the usage of the fleet. A report that may have
    /// arrived is not sent again.
    async fn once(&self) {
        let (used, quota) = self.ledger.take(self.number, &self.key);
        let delta = i64::try_from(used).unwrap_or(i64::MAX);
        if delta > 0 {
            let charge = self.charge(used, quota);
            let told = self.inner.settle(&[charge], delta);
            match told {
                Answer::Done(_) => {}
                Answer::Failed(_) => return self.ledger.put_back(self.number, &charge),
                Answer::Later(answer) => {
                    if Bounded::new(self.deadline, answer).await.is_err() {
                        return;
                    }
                }
            }
        }
        let (look, mut decision) = (self.charge(0, quota), Decision::default());
        let looked = self.inner.acquire(&[look], slice::from_mut(&mut decision));
        match looked {
            Answer::Done(_) => self.ledger.adopt(self.number, look, &decision),
            Answer::Failed(_) => {}
            Answer::Later(answer) => {
                if let Ok(verdict) = Bounded::new(self.deadline, answer).await
                    && let Some(decision) = verdict.decisions.first()
                {
                    self.ledger.adopt(self.number, look, decision);
                }
            }
        }
    }
}

impl Backend for PostPaid {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.inner.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let Ok(runtime) = runtime::Handle::try_current() else {
            return self.inner.acquire(charges, out);
        };
        let Some(own) = self.ledger.own(charges) else {
            return self.inner.acquire(charges, out);
        };
        let own_charges: SmallVec<[Charge<'_>; 4]> =
            own.iter().map(|&(_, charge)| charge).collect();
        let answer = self.ledger.memory.acquire(&own_charges, out);
        let Answer::Done(allowed) = answer else {
            return answer;
        };
        for ((number, charge), charged) in own.iter().zip(charges) {
            let cost = if allowed { charge.cost } else { 0 };
            if self.ledger.used(*number, charge, cost) {
                self.exchange(*number, charged, &runtime);
            }
        }
        for decision in out {
            decision.source = Source::Eventual;
        }
        Answer::Done(allowed)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let ([charge], Some(own)) = (charges, self.ledger.own(charges)) else {
            return self.inner.settle(charges, delta);
        };
        let Some(&(number, own)) = own.first() else {
            return Answer::Done(true);
        };
        // The settlement is complete when `settle` returns.
        drop(self.ledger.memory.settle(&[own], delta));
        // Unsent usage is corrected here, and the backend receives the rest.
        match self.ledger.correct(number, *charge, delta) {
            0 => Answer::Done(true),
            rest => self.inner.settle(charges, rest),
        }
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.ledger.reset(policy, key);
        self.inner.reset(policy, key)
    }
}
