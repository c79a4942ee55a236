//! Operations on counters. A charge adds its tokens to a window's count in one command. If the count then exceeds the
//! limit, a second command takes the excess back. So concurrent requests do not exceed the limit of a window. Until the
//! tokens are taken back, another request that would fit can be rejected.

mod part;

use std::{
    iter,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};
use tower_dist_ratelimit::{
    Decision, Decisions,
    backend::{BackendError, Charge, JointDecision, toolkit::Tag},
};

use super::{
    clock::WallClock,
    counter_policy::{CounterPolicy, MOST},
    failure,
    key::{Key, key},
    link::{Link, PendingAnswer},
    reply::{Code, Meta, number},
    request::Command,
};

/// Maximum number of retries of an operation that adds tokens. It is retried in these cases:
///
/// - Another client of the server began the window first.
/// - Too few tokens were free for the charge, but enough after its own tokens were taken back or the window ended.
/// - The stored value was no count of this policy.
const TRIES: u32 = 4;

/// Maximum number of attempts to take tokens back from a window whose count other operations change meanwhile.
const TAKE_BACKS: u32 = 16;

/// The largest valid count. A larger number is not a count of this crate, or could soon reach 2⁶⁴, where the server's
/// counters wrap.
const LARGEST: u64 = 1 << 62;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    Acquire,
    Settle(i64),
    Reset,
}

/// An operation on the counter of one key.
#[derive(Clone)]
pub(super) struct Operation {
    pub(super) link: Link,
    pub(super) rule: Arc<CounterPolicy>,
    pub(super) clock: WallClock,
    pub(super) tag: Tag,
    pub(super) action: OperationKind,
    /// The charge with an empty key. `tag` stands for the key.
    pub(super) charge: Charge<'static>,
}

/// The first command of an attempt, queued or in flight.
struct FirstCommand {
    pending: PendingAnswer,
    /// When the command was queued, by tokio's clock. Set only if the window ends when the server expires its item.
    at: Option<Instant>,
    /// When the command was queued, by the operation's clock, in nanoseconds.
    nanos: u64,
    /// The number of the window; `None` if windows begin at the first request.
    number: Option<u64>,
    /// The number of tokens that the command adds.
    added: u64,
}

/// The result of one attempt of an operation.
enum OperationOutcome {
    Decided(JointDecision),
    /// The command added `over` more tokens than the decision grants. They have to be taken back.
    Excess {
        decision: Decision,
        over: u64,
        ttl: Option<i64>,
        cas: Option<u64>,
        /// The answer to the command that takes the tokens back, or `None` if the command could not be queued.
        taken_back: Option<PendingAnswer>,
    },
    /// The value is no count of this policy.
    Foreign,
    /// Another client of the server began the window first.
    Overtaken,
}

/// The result of an operation.
type OperationResult = Result<JointDecision, BackendError>;

/// An operation whose caller waits for the first answer. If the caller stops waiting, a task takes over the operation.
struct Open {
    operation: Arc<Operation>,
    attempt: Option<FirstCommand>,
}

impl Open {
    async fn first_answer(&mut self) -> Option<(FirstCommand, Result<Meta, BackendError>)> {
        let answer = (&mut self.attempt.as_mut()?.pending).await;
        Some((self.attempt.take()?, answer))
    }

    /// Completes the operation in a task.
    fn spawn(
        &self,
        attempt: FirstCommand,
        outcome: Option<OperationOutcome>,
    ) -> JoinHandle<OperationResult> {
        let operation = Operation::clone(&self.operation);
        let caller = Arc::downgrade(&self.operation);
        let runtime = self.operation.link.runtime();
        runtime.spawn(operation.complete(attempt, outcome, caller))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.spawn(attempt, None);
        }
    }
}

impl Operation {
    /// Sends the first command, and returns a future of the result.
    ///
    /// If the caller drops the future before the connection task takes the command from its queue, nothing is charged.
    /// If the caller drops the future later, a task takes over the operation.
    pub(super) fn ask(
        self,
    ) -> Result<impl Future<Output = OperationResult> + Send + use<>, BackendError> {
        let operation = Arc::new(self);
        let attempt = Some(operation.attempt(Arc::downgrade(&operation))?);
        let mut open = Open { operation, attempt };
        Ok(async move {
            let Some((attempt, answer)) = open.first_answer().await else {
                return Err(failure::ended());
            };
            let outcome = match open.operation.outcome(&attempt, answer)? {
                OperationOutcome::Decided(verdict) => return Ok(verdict),
                outcome => outcome,
            };
            let allowed = outcome.allowed();
            let task = open.spawn(attempt, Some(outcome));
            match allowed {
                Some(decision) => Ok(one(decision)),
                None => task.await.unwrap_or_else(|_| Err(failure::ended())),
            }
        })
    }

    /// Sends the operation's command: a charge, a correction, or a reset. A charge that costs nothing, or more than the
    /// limit, only reads the counter.
    fn attempt(&self, caller: Weak<Self>) -> Result<FirstCommand, BackendError> {
        let nanos = (self.clock)();
        let number = self.rule.present(nanos, &self.tag);
        let number = number.map(|(number, _)| number);
        let key = self.key(number);
        let limit = self.rule.limit(self.charge.quota);
        let Charge { cost, up_to, .. } = self.charge;
        let added = match self.action {
            OperationKind::Acquire if cost > 0 && cost <= limit => up_to.max(cost).min(limit),
            OperationKind::Settle(delta @ 0..) => delta.unsigned_abs().min(MOST),
            _ => 0,
        };
        let command = match self.action {
            OperationKind::Reset => Command::new("md", &key).end(""),
            OperationKind::Settle(delta @ ..0) => {
                let refund = delta.unsigned_abs().min(cost).min(MOST);
                Command::new("ma", &key).flag(" MD D", refund).end("")
            }
            _ if added == 0 => Command::new("mg", &key).end(" v t"),
            _ => {
                let command = Command::new("ma", &key).ttl(" N", self.rule.ttl(nanos));
                let command = command.flag(" J", added).flag(" D", added);
                command.end(match self.rule.server_window() {
                    Some(_) => " t v c",
                    None => " v",
                })
            }
        };
        Ok(FirstCommand {
            at: self.rule.server_window().map(|_| Instant::now()),
            pending: self.link.send(command, Some(caller))?,
            nanos,
            number,
            added,
        })
    }

    /// Reads the answer to an attempt. If the attempt added too many tokens, immediately tries to queue the command
    /// that takes them back. So this command usually precedes the caller's next charge.
    fn outcome(
        &self,
        attempt: &FirstCommand,
        answer: Result<Meta, BackendError>,
    ) -> Result<OperationOutcome, BackendError> {
        let meta = answer?;
        let count = count(&meta).filter(|_| self.rule.ends(meta.ttl));
        let FirstCommand {
            nanos,
            number,
            added,
            ..
        } = *attempt;
        if added == 0 {
            return Ok(OperationOutcome::Decided(match self.action {
                OperationKind::Acquire => {
                    let ttl = count.and(meta.ttl);
                    one(self.decide(count.unwrap_or(0), number, ttl, (self.clock)()))
                }
                OperationKind::Settle(_) | OperationKind::Reset => done(),
            }));
        }
        if meta.code == Code::NotStored {
            return Ok(OperationOutcome::Overtaken);
        }
        let Some(before) = count.and_then(|count| count.checked_sub(added)) else {
            return Ok(OperationOutcome::Foreign);
        };
        if let OperationKind::Settle(_) = self.action {
            return Ok(OperationOutcome::Decided(done()));
        }
        // Decides by the time of the charge. If the window has ended since, a decision by the present time would not
        // count the window's tokens.
        let decision = self.decide(before, number, meta.ttl, nanos);
        let over = added.saturating_sub(decision.granted);
        if over == 0 {
            return Ok(OperationOutcome::Decided(one(decision)));
        }
        let command = self.take_back(number, over, meta.cas);
        Ok(OperationOutcome::Excess {
            decision,
            over,
            ttl: meta.ttl,
            cas: meta.cas,
            taken_back: self.link.send(command, None).ok(),
        })
    }

    /// Completes an operation from its first attempt on. Retries it in the cases that [`TRIES`] lists, as long as the
    /// caller waits.
    async fn complete(
        self,
        mut attempt: FirstCommand,
        mut outcome: Option<OperationOutcome>,
        caller: Weak<Self>,
    ) -> OperationResult {
        let mut tries = 0;
        loop {
            let outcome = match outcome.take() {
                Some(outcome) => outcome,
                None => {
                    let answer = (&mut attempt.pending).await;
                    self.outcome(&attempt, answer)?
                }
            };
            let allowed = outcome.allowed();
            let last = match outcome {
                OperationOutcome::Decided(verdict) => return Ok(verdict),
                OperationOutcome::Overtaken => {
                    Err(BackendError::busy("another process was quicker"))
                }
                OperationOutcome::Foreign => {
                    self.delete_foreign(attempt.number).await?;
                    Err(BackendError::busy(
                        "a foreign value is kept where a limit counts",
                    ))
                }
                OperationOutcome::Excess {
                    decision,
                    over,
                    ttl,
                    cas,
                    taken_back,
                } => {
                    let back = (over, cas, taken_back);
                    let count = self.taken_back(&attempt, ttl, back).await?;
                    let Some(count) = count.filter(|_| allowed.is_none()) else {
                        return Ok(one(decision));
                    };
                    let present = self.decide(count, attempt.number, ttl, (self.clock)());
                    if !present.allowed {
                        return Ok(one(present));
                    }
                    // Enough tokens have become free, so a retry may succeed.
                    Ok(one(decision))
                }
            };
            if tries == TRIES {
                return last;
            }
            tries += 1;
            attempt = self.attempt(caller.clone())?;
        }
    }

    /// Returns the command that takes tokens back. In a window that the server ends, the command takes effect only if
    /// the item still has the version `cas`.
    fn take_back(&self, number: Option<u64>, over: u64, cas: Option<u64>) -> Command {
        let command = Command::new("ma", &self.key(number)).flag(" MD D", over);
        let command = match cas.filter(|_| self.rule.server_window().is_some()) {
            Some(cas) => command.flag(" C", cas),
            None => command,
        };
        command.end(" v")
    }

    /// Takes the excess tokens back. Returns the window's count afterwards, or 0 if the window has ended. Returns
    /// `None` if it gives up; the tokens can then stay charged until the window ends.
    async fn taken_back(
        &self,
        attempt: &FirstCommand,
        ttl: Option<i64>,
        (over, mut cas, mut pending): (u64, Option<u64>, Option<PendingAnswer>),
    ) -> Result<Option<u64>, BackendError> {
        let window = self.rule.server_window().unwrap_or_default();
        for _ in 0..TAKE_BACKS {
            let meta = match pending.take() {
                Some(pending) => pending.await?,
                None => {
                    let command = self.take_back(attempt.number, over, cas);
                    self.link.send_in_turn(command).await?
                }
            };
            if meta.code != Code::Exists {
                return Ok(Some(count(&meta).unwrap_or(0)));
            }
            let meta = self.read(attempt.number).await?;
            // The item is the charged window or a later one. If its time to live has grown since the charge, it is a
            // later one. `ttl` is the time to live of the charged window at the charge. A later window begins only when
            // the charged one ends. So the time to live of a later window falls to `ttl` at the earliest one window
            // length after the charge, less a tick of the server's clock at each end. Before then, an item whose time
            // to live is at most `ttl` is the charged window, unless that window was deleted or evicted meanwhile.
            let ticks = Duration::from_secs(2);
            let is_same = meta.ttl.is_some_and(|now| Some(now) <= ttl)
                && attempt
                    .at
                    .is_some_and(|at| at.elapsed() < window.saturating_sub(ticks));
            match (meta.code, meta.cas) {
                (Code::Value, Some(_)) if is_same => cas = meta.cas,
                (Code::Value, _) if ttl >= meta.ttl => return Ok(None),
                _ => return Ok(Some(0)),
            }
        }
        Ok(None)
    }

    /// Deletes a value that is no count of this policy, unless the value has been replaced meanwhile.
    async fn delete_foreign(&self, number: Option<u64>) -> Result<(), BackendError> {
        let meta = self.read(number).await?;
        let is_foreign = count(&meta).is_none() || !self.rule.ends(meta.ttl);
        if let Some(cas) = meta.cas.filter(|_| is_foreign) {
            let command = Command::new("md", &self.key(number)).flag(" C", cas);
            self.link.send_in_turn(command.end("")).await?;
        }
        Ok(())
    }

    async fn read(&self, number: Option<u64>) -> Result<Meta, BackendError> {
        let command = Command::new("mg", &self.key(number)).end(" v t c");
        self.link.send_in_turn(command).await
    }

    fn key(&self, number: Option<u64>) -> Key {
        key(&self.rule.keys, &self.tag, number)
    }

    /// Decides on the charge. `count` is the window's count without the charge.
    fn decide(&self, count: u64, number: Option<u64>, ttl: Option<i64>, nanos: u64) -> Decision {
        let at = (nanos, &self.tag);
        self.rule.decide(count, number, ttl, at, &self.charge)
    }
}

impl OperationOutcome {
    /// Returns the decision if the request is allowed but excess tokens have to be taken back.
    fn allowed(&self) -> Option<Decision> {
        match self {
            Self::Excess { decision, .. } => Some(*decision).filter(|decision| decision.allowed),
            _ => None,
        }
    }
}

/// Reads a counter. Returns `None` without a valid count. After a decrement, the server can pad the number with spaces.
fn count(meta: &Meta) -> Option<u64> {
    let digits = meta.value.as_ref()?.trim_ascii_end();
    number(digits).filter(|&count| count <= LARGEST)
}

fn one(decision: Decision) -> JointDecision {
    JointDecision {
        allowed: decision.allowed,
        decisions: iter::once(decision).collect(),
    }
}

/// The result of a successful settlement or reset, which has no decisions.
fn done() -> JointDecision {
    JointDecision {
        allowed: true,
        decisions: Decisions::rejected(0),
    }
}

#[cfg(test)]
mod tests;
