//! Requests whose keys are on several servers, in several slots of a Redis Cluster or in several values of a store, and
//! corrections of charges.
//!
//! Each server, slot or value decides on a *part* of the request, because it does not have the other keys. If one part
//! is rejected or fails, the other parts are refunded. A task of the backend awaits the answers and makes the refunds,
//! so that the refunds are made even if the caller drops the request.

use std::{
    mem,
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

use crate::backend::{BackendError, BoxFuture, JointDecision};
use crate::{Decision, Decisions, Source};

/// Maximum number of transactions in progress.
const MOST: u32 = 8192;

/// The time for which a correction is retried: ten times the default timeout of an answer.
const RETRIED_FOR: Duration = Duration::from_secs(5);

/// The first and the longest pause between retries, before full jitter. A full send queue usually drains, and a race
/// for a key usually ends, within milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// A part of a [transaction](Transactions): the charges (or refunds or extra charges) that are made together. Usually
/// one server makes them in one atomic step.
pub trait TransactionPart: Send + Sized + 'static {
    /// The error of a failed part.
    type Failure: Into<BackendError> + Send;

    /// Sends the part, or queues it for sending, before the returned future is polled.
    ///
    /// # Errors
    ///
    /// The part could not be sent.
    fn send(&self) -> Result<PartAnswer<Self>, Self::Failure>;

    /// Returns the index of each charge of this part among all charges of the request.
    fn places(&self) -> impl Iterator<Item = usize>;

    /// Returns the correction that refunds the granted tokens. `granted` has one number per charge of this part.
    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self;

    /// Returns smaller parts to send instead, if the failure means that the keys of this part are no longer on one
    /// server. Returns `None` for other failures.
    ///
    /// # Default
    ///
    /// `None` for every failure.
    fn split(&self, _: &Self::Failure) -> Option<Vec<Self>> {
        None
    }

    /// Returns whether a failed part changed nothing and may succeed if it is sent again. A transaction retries only
    /// corrections, for about 5 s.
    fn is_retryable(failure: &Self::Failure) -> bool;
}

/// The future of a part's decisions.
pub type PartAnswer<P> = BoxFuture<'static, Result<JointDecision, <P as TransactionPart>::Failure>>;

/// The future of a backend's decisions.
pub type PendingVerdict = BoxFuture<'static, Result<JointDecision, BackendError>>;

/// Parts, each with its pending answer, or with the error if it could not be sent.
type Sent<P> = Vec<(P, Result<PartAnswer<P>, <P as TransactionPart>::Failure>)>;

/// Parts with their answers.
type Answered<P> = Vec<(P, Result<JointDecision, <P as TransactionPart>::Failure>)>;

/// Runs the transactions of a backend, at most 8,192 at a time. A transaction makes the charges of one
/// [`acquire`](Self::acquire), or the corrections (refunds or extra charges) of one [`settle`](Self::settle). Each
/// transaction is completed by a task on the runtime on which [`current`](Self::current) was called.
///
/// If one [part](TransactionPart) of the charges is rejected or fails, the transaction refunds the tokens of the
/// allowed parts. A transaction continues even if the caller drops its future. Clones share the maximum of 8,192 and
/// the count of [lost](Self::lost) corrections.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::{iter, sync::{Arc, atomic::{AtomicI64, Ordering}}, time::Duration};
/// use tower_dist_ratelimit::{Decision, Decisions, Source};
/// use tower_dist_ratelimit::backend::{BackendError, JointDecision};
/// use tower_dist_ratelimit::backend::toolkit::{PartAnswer, TransactionPart, Transactions};
///
/// /// One charge to one of several servers.
/// struct Part { server: Arc<AtomicI64>, place: usize, cost: i64 }
///
/// impl TransactionPart for Part {
///     type Failure = BackendError;
///
///     fn send(&self) -> Result<PartAnswer<Self>, BackendError> {
///         let left = self.server.fetch_sub(self.cost, Ordering::Relaxed) - self.cost;
///         let decision = match left >= 0 {
///             true => Decision::allow(1, 9, left.unsigned_abs(), Duration::ZERO),
///             false => Decision::reject(9, 0, None, Duration::ZERO),
///         };
///         let verdict = JointDecision { allowed: decision.allowed, decisions: Decisions::from_iter([decision]) };
///         Ok(Box::pin(async { Ok(verdict) }))
///     }
///
///     fn places(&self) -> impl Iterator<Item = usize> {
///         iter::once(self.place)
///     }
///
///     fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
///         Self { server: Arc::clone(&self.server), cost: -granted.sum::<u64>().cast_signed(), ..*self }
///     }
///
///     fn is_retryable(_: &BackendError) -> bool {
///         false
///     }
/// }
///
/// let transactions = Transactions::current();
/// let servers = [5, 0].map(|tokens| Arc::new(AtomicI64::new(tokens)));
/// let parts = servers.iter().enumerate();
/// let parts = parts.map(|(place, server)| Part { server: Arc::clone(server), place, cost: 1 }).collect();
/// let verdict = transactions.acquire(parts)?.await?;
/// // The second server rejected the request, and the first one has its token back.
/// assert!(!verdict.allowed && verdict.decisions[0].source == Source::Parts);
/// transactions.finish(Duration::from_secs(1)).await?;
/// assert_eq!((servers[0].load(Ordering::Relaxed), transactions.lost()), (5, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Transactions(Arc<SharedTransactions>);

#[derive(Debug)]
struct SharedTransactions {
    runtime: Handle,
    /// One permit for each transaction that may still begin.
    room: Arc<Semaphore>,
    lost: AtomicU64,
}

impl Transactions {
    /// Transactions on the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self(Arc::new(SharedTransactions {
            runtime: Handle::current(),
            room: Arc::new(Semaphore::new(usize::try_from(MOST).unwrap_or(usize::MAX))),
            lost: AtomicU64::new(0),
        }))
    }

    /// Returns the number of lost corrections: refunds and extra charges that failed, or whose outcome is unknown. A
    /// lost refund may leave its tokens charged, so fewer requests are admitted. A lost extra charge may not have taken
    /// its tokens, so more requests are admitted. Corrections that end because their runtime ends do not count. Neither
    /// do corrections that [`settle`](Self::settle) refuses at once.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Waits at most `limit` until no transaction is in progress. During the wait, new transactions fail.
    ///
    /// # Errors
    ///
    /// A [timeout](BackendError::is_timeout), if a transaction is still in progress after `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends only the wait; the transactions continue.
    pub async fn finish(&self, limit: Duration) -> Result<(), BackendError> {
        let all = timeout(limit, self.0.room.acquire_many(MOST)).await;
        all.map(drop).map_err(|_| BackendError::timeout(limit))
    }

    /// Makes the charges of all parts. If a part is rejected or fails, refunds the tokens of the allowed parts.
    /// Normally, refunds are sent before the returned future resolves, and so precede the caller's next charges.
    ///
    /// # Errors
    ///
    /// No part could be sent, 8,192 transactions are in progress, or [`finish`](Self::finish) waits. The returned
    /// future fails if the runtime ends before the answer, or if a part fails and does not
    /// [split](TransactionPart::split).
    pub fn acquire<P: TransactionPart>(
        &self,
        parts: Vec<P>,
    ) -> Result<PendingVerdict, BackendError> {
        self.start(parts, false)
    }

    /// Makes corrections: refunds or extra charges. If the failure of a correction is
    /// [retryable](TransactionPart::is_retryable), sends the correction again for about 5 s. A correction that fails in
    /// the end usually counts as [lost](Self::lost).
    ///
    /// # Errors
    ///
    /// Fails at once if 8,192 transactions are in progress, or if [`finish`](Self::finish) waits. Also fails at once if
    /// no correction could be sent and none of the failures is retryable. If this function itself fails, no correction
    /// counts as lost, because the caller can send all of them again. The returned future fails if a correction is lost
    /// or the runtime has ended.
    pub fn settle<P: TransactionPart>(
        &self,
        parts: Vec<P>,
    ) -> Result<PendingVerdict, BackendError> {
        self.start(parts, true)
    }

    /// Sends the parts, and completes the transaction in a task. Fails if no part could be sent, unless the parts are
    /// corrections and one of the failures is retryable.
    fn start<P: TransactionPart>(
        &self,
        parts: Vec<P>,
        settles: bool,
    ) -> Result<PendingVerdict, BackendError> {
        let room = Arc::clone(&self.0.room).try_acquire_owned();
        let permit = room.map_err(|_| {
            BackendError::new(format!(
                "{MOST} transactions are in progress, or `finish` waits"
            ))
        })?;
        let mut sent = send(parts);
        let is_over = |failure: &_| !(settles && P::is_retryable(failure));
        let mut first = sent.iter().map(|(_, answer)| answer.as_ref());
        if first.all(|answer| answer.is_err_and(is_over))
            && let Some((_, Err(failure))) = sent.pop()
        {
            return Err(failure.into());
        }
        let (told, decided) = oneshot::channel();
        let this = self.clone();
        // Boxed, so that tokio's code of a task is compiled once, and not for each type of future.
        let task: BoxFuture<'static, ()> = Box::pin(async move {
            let _permit = permit;
            if settles {
                let corrected = this.correct(sent).await;
                let _ = told.send(corrected.map(|()| JointDecision {
                    allowed: true,
                    decisions: Decisions::rejected(0),
                }));
            } else {
                let answers = answers(sent).await;
                let refunds = send(refunds(&answers));
                let _ = told.send(verdict(answers));
                let _ = this.correct(refunds).await;
            }
        });
        self.0.runtime.spawn(task);
        Ok(Box::pin(async move {
            let ended = "the runtime of the connections has ended";
            let lost = |_| Err(BackendError::new(ended));
            decided.await.unwrap_or_else(lost)
        }))
    }

    /// Counts a lost correction. Logs only the first one, so that no client can flood the logs.
    fn give_up(&self, error: BackendError) -> BackendError {
        if self.0.lost.fetch_add(1, Relaxed) == 0 {
            #[cfg(feature = "tracing")]
            tracing::warn!(%error, "gave up a refund or an extra charge of a rate limit: its count stays wrong");
        }
        error
    }

    /// Waits for corrections, and retries those with retryable failures for about 5 s. Counts the corrections that fail
    /// in the end as lost.
    async fn correct<P: TransactionPart>(&self, mut sent: Sent<P>) -> Result<(), BackendError> {
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

fn send<P: TransactionPart>(parts: Vec<P>) -> Sent<P> {
    let sent = parts.into_iter().map(|part| {
        let answer = part.send();
        (part, answer)
    });
    sent.collect()
}

/// Waits for the answers to all parts, one after the other. The parts were sent together, so their round trips overlap.
/// If a part splits, sends the smaller parts and waits for their answers, too.
async fn answers<P: TransactionPart>(mut sent: Sent<P>) -> Answered<P> {
    let mut answers = Vec::with_capacity(sent.len());
    while !sent.is_empty() {
        let mut smaller = Vec::new();
        for (part, answer) in mem::take(&mut sent) {
            let answer = async { answer?.await }.await;
            if let Err(failure) = &answer
                && let Some(parts) = part.split(failure)
            {
                smaller.extend(parts);
            } else {
                answers.push((part, answer));
            }
        }
        sent = send(smaller);
    }
    answers
}

/// Returns whether all parts allow the request.
fn is_allowed<P: TransactionPart>(answers: &Answered<P>) -> bool {
    let mut answers = answers.iter().map(|(_, answer)| answer.as_ref());
    answers.all(|answer| answer.is_ok_and(|verdict| verdict.allowed))
}

/// Returns the refunds of the parts whose answers grant tokens. Empty if all parts allow the request.
fn refunds<P: TransactionPart>(answers: &Answered<P>) -> Vec<P> {
    if is_allowed(answers) {
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

fn verdict<P: TransactionPart>(answers: Answered<P>) -> Result<JointDecision, BackendError> {
    let allowed = is_allowed(&answers);
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

/// Changes a decision so that it grants nothing, because any tokens that it granted are refunded.
fn take_back(decision: &mut Decision) {
    decision.source = Source::Parts;
    decision.remaining += decision.granted;
    decision.granted = 0;
    decision.delay = Duration::ZERO;
}

#[cfg(test)]
mod tests;
