use std::sync::Arc;

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};
use tower_dist_ratelimit::{
    Decision, Decisions, Quota,
    algorithm::Ask,
    backend::{Charge, JointDecision, toolkit::Tag},
};

use super::{counted::Counted, failure::Failure, set::Set};

/// Where an answer goes.
pub(super) type Answer = oneshot::Sender<Result<JointDecision, Failure>>;

/// What is asked of a server.
pub(super) enum Job {
    Count(Box<Counting>),
    Swap(Swapping),
}

impl Job {
    pub(super) fn fail(self, failure: Failure) {
        match self {
            Self::Count(job) => job.answer(Err(failure)),
            Self::Swap(job) => {
                let _ = job.answer.send(Err(failure));
            }
        }
    }

    /// Whether nobody waits for it any more.
    pub(super) fn is_left(&self) -> bool {
        match self {
            Self::Count(job) => job.answer.as_ref().is_none_or(oneshot::Sender::is_closed),
            Self::Swap(job) => job.answer.is_closed(),
        }
    }
}

/// What a charge is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire,
    Settle(i64),
    Reset,
}

/// A charge that owns what it needs, but for its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) cost: u64,
    pub(super) want: u64,
    pub(super) quota: Option<Quota>,
}

impl Asked {
    pub(super) fn of(charge: &Charge<'_>) -> Self {
        Self {
            cost: charge.cost,
            want: charge.up_to.max(charge.cost),
            quota: charge.quota,
        }
    }

    pub(super) fn ask(&self) -> Ask<'_> {
        Ask {
            cost: self.cost,
            want: self.want,
            quota: self.quota.as_ref(),
        }
    }

    /// A correction, which puts back no more than was taken.
    pub(super) fn delta(&self, delta: i64) -> i64 {
        delta.max(-i64::try_from(self.cost).unwrap_or(i64::MAX))
    }
}

/// A question about one policy that the server counts, and how far its answer has come.
pub(super) struct Counting {
    pub(super) rule: Arc<Counted>,
    pub(super) tag: Tag,
    pub(super) verb: Verb,
    pub(super) asked: Asked,
    /// None once it is answered, and something is still to be put in order.
    pub(super) answer: Option<Answer>,
    /// How often it was tried.
    pub(super) tries: u32,
    /// The window that is charged.
    pub(super) number: Option<u64>,
    /// What was counted in those before it.
    pub(super) older: SmallVec<[u64; 1]>,
    /// What is counted in the next one, by those whose clocks are ahead.
    pub(super) ahead: u64,
    /// What was added, and has to be taken back.
    pub(super) over: u64,
    pub(super) sent: Instant,
    /// The same by the clock that windows go by.
    pub(super) nanos: u64,
    /// The seconds that the window had left then.
    pub(super) ttl: Option<i64>,
    /// What was decided before that was taken back.
    pub(super) refusal: Decision,
}

impl Counting {
    pub(super) fn new(
        rule: Arc<Counted>,
        tag: Tag,
        verb: Verb,
        asked: Asked,
        answer: Answer,
    ) -> Self {
        Self {
            rule,
            tag,
            verb,
            asked,
            answer: Some(answer),
            tries: 0,
            number: None,
            older: SmallVec::new(),
            ahead: 0,
            over: 0,
            sent: Instant::now(),
            nanos: 0,
            ttl: None,
            refusal: Decision::reject(0, 0, None, std::time::Duration::ZERO),
        }
    }

    pub(super) fn answer(mut self, verdict: Result<JointDecision, Failure>) {
        self.tell(verdict);
    }

    pub(super) fn decided(self, decision: Decision) {
        self.answer(Ok(one(decision)));
    }

    /// Answers, and goes on.
    pub(super) fn tell(&mut self, verdict: Result<JointDecision, Failure>) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(verdict);
        }
    }

    pub(super) fn done(self) {
        self.answer(Ok(done()));
    }
}

pub(super) fn one(decision: Decision) -> JointDecision {
    JointDecision {
        allowed: decision.allowed,
        decisions: std::iter::once(decision).collect(),
    }
}

/// What a correction is answered.
pub(super) fn done() -> JointDecision {
    JointDecision {
        allowed: true,
        decisions: Decisions::rejected(0),
    }
}

/// A question about policies whose states are one item.
pub(super) struct Swapping {
    pub(super) set: Arc<Set>,
    pub(super) tag: Tag,
    pub(super) verb: Verb,
    /// The policies' places in the set, and what is asked of each.
    pub(super) asked: SmallVec<[(usize, Asked); 1]>,
    pub(super) answer: Answer,
    pub(super) since: Instant,
}
