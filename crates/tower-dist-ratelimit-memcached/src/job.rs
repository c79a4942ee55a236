use std::sync::Arc;

use tokio::{sync::oneshot, time::Instant};
use tower_dist_ratelimit::{
    Decision, Decisions,
    backend::{Charge, JointDecision, toolkit::Tag},
};

use super::{counted::Counted, failure::Failure, reply::Meta, request::Command};

/// Where an answer goes.
pub(super) type Answer = oneshot::Sender<Result<JointDecision, Failure>>;

/// A request to a server.
pub(super) enum Job {
    /// Decide by a counter.
    Count(Box<Counting>),
    /// Send one command.
    Ask {
        command: Command,
        answer: oneshot::Sender<Result<Meta, Failure>>,
    },
}

impl Job {
    pub(super) fn fail(self, failure: Failure) {
        match self {
            Self::Count(job) => job.answer(Err(failure)),
            Self::Ask { answer, .. } => {
                let _ = answer.send(Err(failure));
            }
        }
    }

    /// Returns whether the caller has left.
    pub(super) fn is_left(&self) -> bool {
        match self {
            Self::Count(job) => job.answer.as_ref().is_none_or(oneshot::Sender::is_closed),
            Self::Ask { answer, .. } => answer.is_closed(),
        }
    }
}

/// The operation on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire,
    Settle(i64),
    Reset,
}

/// A question about one policy that the server counts, and how far its answer has come.
pub(super) struct Counting {
    pub(super) rule: Arc<Counted>,
    pub(super) tag: Tag,
    pub(super) verb: Verb,
    /// Without its key.
    pub(super) charge: Charge<'static>,
    /// None once it is answered, and something is still to be put in order.
    pub(super) answer: Option<Answer>,
    /// How often it was tried.
    pub(super) tries: u32,
    /// The window that is charged.
    pub(super) number: Option<u64>,
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
        charge: Charge<'static>,
        answer: Answer,
    ) -> Self {
        Self {
            rule,
            tag,
            verb,
            charge,
            answer: Some(answer),
            tries: 0,
            number: None,
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
