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

/// Decides here, and tells a store afterwards: what a fleet learns of each other is as old as the last exchange.
pub(crate) struct PostPaid {
    inner: Arc<dyn Backend>,
    ledger: Arc<Ledger>,
    created: Instant,
    period: Duration,
    deadline: Duration,
    /// One for each key that was asked about lately. They end with this.
    exchanges: Mutex<JoinSet<()>>,
}

/// What is exchanged about.
struct Exchange {
    inner: Arc<dyn Backend>,
    ledger: Arc<Ledger>,
    policy: PolicyId,
    number: usize,
    key: Box<[u8]>,
    deadline: Duration,
    /// Nobody asks about the key any more.
    over: bool,
}

/// Also one that ends before its time, with its runtime or because the store panics, leaves the key to another.
impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.over {
            self.ledger.forget(self.number, &self.key);
        }
    }
}

impl PostPaid {
    /// Over a store that knows the policies of this ledger.
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

    /// How long after the first exchange the second one is: anything up to a period, so that instances which were asked together
    /// do not go on together, and make one great debt. When a request comes is as good as chance, and can be repeated.
    fn phase(&self) -> Duration {
        let now = saturating_nanos(self.created.elapsed());
        // A step of SplitMix64.
        let mixed = (now ^ now >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let thousandths = u32::try_from(mixed >> 32).unwrap_or_default() % 1_000;
        self.period * thousandths / 1_000
    }

    /// Starts to exchange about a key, until it is not asked about for a period.
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
    /// Until nobody has asked about the key for a period. The first one is shorter.
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

    /// Says what was used here, and hears what was used everywhere. What may or may not have arrived is not said again.
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
        // It is done when it is asked for.
        drop(self.ledger.memory.settle(&[own], delta));
        // The store need not hear of what it was not told yet.
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
