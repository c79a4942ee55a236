//! Policies whose keys differ: their states are different items, which no server changes together.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};
use tower_dist_ratelimit::backend::{
    JointDecision,
    toolkit::{PartAnswer, Tag, TransactionPart},
};

use super::{
    Memcached,
    failure::Failure,
    job::{Asked, Counting, Job, Swapping, Verb},
    key,
    link::Link,
    set::Kept,
};

/// What is asked of one item.
pub(super) struct Part {
    memcached: Memcached,
    kept: Kept,
    tag: Tag,
    verb: Verb,
    /// The places among all charges, those in the set, and what is asked.
    asked: SmallVec<[(usize, usize, Asked); 1]>,
}

impl Part {
    pub(super) fn new(
        memcached: &Memcached,
        kept: Kept,
        tag: Tag,
        verb: Verb,
        place: usize,
        asked: Asked,
    ) -> Self {
        let slot = match kept {
            Kept::Counted(_) => 0,
            Kept::InSet(_, slot) => slot,
        };
        Self {
            memcached: memcached.clone(),
            kept,
            tag,
            verb,
            asked: [(place, slot, asked)].into_iter().collect(),
        }
    }

    /// Adds a charge, if it is to the same item.
    pub(super) fn join(&mut self, kept: &Kept, tag: &Tag, place: usize, asked: Asked) -> bool {
        match (&self.kept, kept) {
            (Kept::InSet(set, _), Kept::InSet(other, slot))
                if Arc::ptr_eq(set, other) && self.tag == *tag =>
            {
                self.asked.push((place, *slot, asked));
                true
            }
            _ => false,
        }
    }

    /// Sends the charges or corrections.
    pub(super) fn ask(
        &self,
    ) -> Result<impl Future<Output = Result<JointDecision, Failure>> + Send + use<>, Failure> {
        let Memcached { servers, seeds, .. } = &self.memcached;
        let (_, link) = &servers[key::server(seeds, &self.tag)];
        let (answer, receiver) = oneshot::channel();
        let job = match &self.kept {
            Kept::Counted(rule) => {
                let (_, _, asked) = self.asked[0];
                let rule = Arc::clone(rule);
                let job = Counting::new(rule, self.tag, self.verb, asked, answer);
                Job::Count(Box::new(job))
            }
            Kept::InSet(set, _) => Job::Swap(Swapping {
                set: Arc::clone(set),
                tag: self.tag,
                verb: self.verb,
                asked: self
                    .asked
                    .iter()
                    .map(|&(_, slot, asked)| (slot, asked))
                    .collect(),
                answer,
                since: Instant::now(),
            }),
        };
        link.send(job)?;
        Ok(Link::answer(receiver, link.health()))
    }
}

impl TransactionPart for Part {
    type Failure = Failure;

    fn send(&self) -> Result<PartAnswer<Self>, Failure> {
        Ok(Box::pin(self.ask()?))
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.asked.iter().map(|&(place, ..)| place)
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        let asked = self.asked.iter().zip(granted);
        Self {
            memcached: self.memcached.clone(),
            kept: self.kept.clone(),
            tag: self.tag,
            // Of each no more than it took.
            verb: Verb::Settle(i64::MIN),
            asked: asked
                .map(|(&(place, slot, asked), cost)| (place, slot, Asked { cost, ..asked }))
                .collect(),
        }
    }

    fn is_retryable(failure: &Failure) -> bool {
        failure.is_busy()
    }
}
