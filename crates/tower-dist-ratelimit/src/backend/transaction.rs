//! Transactions: charges whose keys are on several servers, or in several slots of a Cluster; and corrections.
//!
//! No server decides about the keys of another. So each server or slot decides about its own part, and if one part is
//! rejected or fails, the other parts are refunded. A task of the backend does all of that, so that a cancelled request
//! leaves no tokens charged.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
    time::{Instant, sleep, timeout},
};
use tower_jitter_retry::Backoff;

use super::{BackendError, BoxFuture, JointDecision};
use crate::{Decision, Decisions, Source};

/// Maximum number of transactions in progress: as many as the largest queue of a connection holds.
const MOST: u32 = 8192;

/// How long a correction is retried. Ten times as long as a server may take to answer by default.
const RETRIED_FOR: Duration = Duration::from_secs(5);

/// Pauses between retries. Full queues drain, and races for a key end, within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Charges or corrections that one server makes in one step.
pub(super) trait Part: Send + Sized + 'static {
    type Failure: Into<BackendError> + Send;

    fn send(&self) -> Result<Answered<Self>, Self::Failure>;

    /// The indices of its charges in the transaction.
    fn places(&self) -> impl Iterator<Item = usize>;

    /// The correction that returns these tokens, one number for each charge.
    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self;

    /// The parts to send instead, if the failure means that its keys are no longer in one place.
    fn split(&self, _: &Self::Failure) -> Option<Vec<Self>> {
        None
    }

    /// Whether nothing was charged and the connection lasts, so that sending again is safe and may succeed.
    fn is_retryable(failure: &Self::Failure) -> bool;
}

/// The pending answer to a part.
pub(super) type Answered<P> = BoxFuture<'static, Result<JointDecision, <P as Part>::Failure>>;

/// The pending answer to a whole transaction.
pub(super) type Decided = BoxFuture<'static, Result<JointDecision, BackendError>>;

/// Parts in flight.
type Sent<P> = Vec<(P, Result<Answered<P>, <P as Part>::Failure>)>;

/// The transactions of a backend. They run where its connections live.
#[derive(Clone)]
pub(super) struct Transactions(Arc<Shared>);

struct Shared {
    runtime: Handle,
    /// One permit for each transaction that may still begin.
    room: Arc<Semaphore>,
    lost: AtomicU64,
}

impl Transactions {
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            runtime: Handle::current(),
            room: Arc::new(Semaphore::new(usize::try_from(MOST).unwrap_or(usize::MAX))),
            lost: AtomicU64::new(0),
        }))
    }

    /// Number of corrections that were given up.
    pub(super) fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Waits until no transaction is in progress. Meanwhile none begins.
    pub(super) async fn finish(&self, limit: Duration) -> Result<(), BackendError> {
        match timeout(limit, self.0.room.acquire_many(MOST)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(BackendError::late(limit)),
        }
    }

    /// Charges all parts or none. Refunds are in flight when the verdict is there, so that they precede the next charges
    /// of the same caller.
    pub(super) fn acquire<P: Part>(&self, parts: Vec<P>) -> Result<Decided, BackendError> {
        self.start(
            parts,
            |_| false,
            |this, sent, told| async move {
                let answers = answers(sent).await;
                let refunds = send(refunds(&answers));
                let _ = told.send(verdict(answers));
                let _ = this.correct(refunds).await;
            },
        )
    }

    /// Makes corrections. A correction that fails here was not sent, so the caller can send it again.
    pub(super) fn settle<P: Part>(&self, parts: Vec<P>) -> Result<Decided, BackendError> {
        self.start(parts, P::is_retryable, |this, sent, told| async move {
            let corrected = this.correct(sent).await;
            let _ = told.send(corrected.map(|()| JointDecision {
                allowed: true,
                decisions: Decisions::rejected(0),
            }));
        })
    }

    /// Sends the parts and runs the rest in a task, unless no part could be sent and none `is_retryable`.
    fn start<P: Part, F>(
        &self,
        parts: Vec<P>,
        is_retryable: fn(&P::Failure) -> bool,
        run: impl FnOnce(Self, Sent<P>, oneshot::Sender<Result<JointDecision, BackendError>>) -> F,
    ) -> Result<Decided, BackendError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let room = Arc::clone(&self.0.room).try_acquire_owned();
        let permit = room.map_err(|_| {
            BackendError::new(format!("{MOST} transactions are in progress already"))
        })?;
        let mut sent = send(parts);
        let is_over =
            |answer: &Result<_, _>| answer.as_ref().is_err_and(|failure| !is_retryable(failure));
        if sent.iter().all(|(_, answer)| is_over(answer))
            && let Some((_, Err(failure))) = sent.pop()
        {
            return Err(failure.into());
        }
        let (told, decided) = oneshot::channel();
        let running = run(self.clone(), sent, told);
        self.0.runtime.spawn(async move {
            running.await;
            drop(permit);
        });
        Ok(Box::pin(async move {
            let ended = |_| {
                Err(BackendError::new(
                    "the runtime of the connections has ended",
                ))
            };
            decided.await.unwrap_or_else(ended)
        }))
    }

    /// Counts a correction that is not made. Only the first one is logged, so that no client can flood the logs.
    fn give_up(&self, error: BackendError) -> BackendError {
        if self.0.lost.fetch_add(1, Relaxed) == 0 {
            #[cfg(feature = "tracing")]
            tracing::warn!(%error, "gave up a refund or another correction of a rate limit: the tokens stay charged");
        }
        error
    }

    /// Waits for corrections, and retries a correction that the server did not make for want of room. A correction that
    /// is given up leaves its tokens charged, which admits less and not more.
    async fn correct<P: Part>(&self, mut sent: Sent<P>) -> Result<(), BackendError> {
        let mut pauses = Backoff::exponential(FIRST_PAUSE, LONGEST_PAUSE).schedule();
        let end = Instant::now() + RETRIED_FOR;
        let mut result = Ok(());
        loop {
            let mut again = Vec::new();
            for (part, answer) in answers(sent).await {
                match answer {
                    Ok(_) => {}
                    Err(failure) if P::is_retryable(&failure) && Instant::now() < end => {
                        again.push(part);
                    }
                    Err(failure) => result = Err(self.give_up(failure.into())),
                }
            }
            if again.is_empty() {
                return result;
            }
            sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            sent = send(again);
        }
    }
}

fn send<P: Part>(parts: Vec<P>) -> Sent<P> {
    let sent = parts.into_iter().map(|part| {
        let answer = part.send();
        (part, answer)
    });
    sent.collect()
}

/// Waits for all parts. They are in flight together, so waiting for one after the other takes no longer.
async fn answers<P: Part>(mut sent: Sent<P>) -> Vec<(P, Result<JointDecision, P::Failure>)> {
    let mut answers = Vec::with_capacity(sent.len());
    while !sent.is_empty() {
        let mut smaller = Vec::new();
        for (part, answer) in mem::take(&mut sent) {
            let answer = match answer {
                Ok(answer) => answer.await,
                Err(failure) => Err(failure),
            };
            match answer
                .as_ref()
                .err()
                .and_then(|failure| part.split(failure))
            {
                Some(parts) => smaller.extend(parts),
                None => answers.push((part, answer)),
            }
        }
        sent = send(smaller);
    }
    answers
}

fn is_allowed<F>(answer: &Result<JointDecision, F>) -> bool {
    answer.as_ref().is_ok_and(|verdict| verdict.allowed)
}

/// The refunds of those parts that took tokens, unless all parts allow the request.
fn refunds<P: Part>(answers: &[(P, Result<JointDecision, P::Failure>)]) -> Vec<P> {
    if answers.iter().all(|(_, answer)| is_allowed(answer)) {
        return Vec::new();
    }
    let refunds = answers.iter().filter_map(|(part, answer)| {
        let verdict = answer.as_ref().ok().filter(|verdict| verdict.allowed)?;
        let mut granted = verdict.decisions.iter().map(|decision| decision.granted);
        let took = granted.clone().any(|granted| granted > 0);
        took.then(|| part.refund(&mut granted))
    });
    refunds.collect()
}

fn verdict<P: Part>(
    answers: Vec<(P, Result<JointDecision, P::Failure>)>,
) -> Result<JointDecision, BackendError> {
    let allowed = answers.iter().all(|(_, answer)| is_allowed(answer));
    let returned = !allowed && answers.len() > 1;
    let charges = answers.iter().map(|(part, _)| part.places().count());
    let mut decisions = Decisions::rejected(charges.sum());
    for (part, answer) in answers {
        let verdict = answer.map_err(Into::into)?;
        for (place, &decision) in part.places().zip(verdict.decisions.iter()) {
            decisions[place] = decision;
        }
    }
    if returned {
        decisions.iter_mut().for_each(take_back);
    }
    Ok(JointDecision { allowed, decisions })
}

/// Adjusts a decision whose tokens are refunded.
fn take_back(decision: &mut Decision) {
    decision.source = Source::Parts;
    decision.remaining += decision.granted;
    decision.granted = 0;
    decision.delay = Duration::ZERO;
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions")
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
