use tower_dist_ratelimit::{Decisions, algorithm::Words, backend::JointDecision};

use super::{
    clock::Time,
    job::{self, Swapping, Verb},
    key::bits,
    request::Ttl,
    set::Set,
    slot::At,
};

/// Questions about one item, answered one after the other by what it says; and what it has to say after them.
pub(super) struct Batch {
    pub(super) jobs: Vec<(Swapping, JointDecision)>,
    pub(super) states: Vec<Words>,
    /// How long that is to be kept; none if nothing has changed.
    pub(super) write: Option<Ttl>,
}

impl Batch {
    pub(super) fn decide(
        set: &Set,
        mut states: Vec<Words>,
        jobs: Vec<Swapping>,
        time: Time,
    ) -> Self {
        let mut write = None;
        let mut answered = Vec::with_capacity(jobs.len());
        for job in jobs {
            let at = At {
                nanos: time.nanos,
                key: bits(&job.tag),
            };
            let (verdict, wrote) = apply(set, &mut states, &job, at);
            if wrote {
                write = Some(set.ttl(&states, at, time));
            }
            answered.push((job, verdict));
        }
        Self {
            jobs: answered,
            states,
            write,
        }
    }
}

/// Answers one question; and whether that has changed anything.
fn apply(set: &Set, states: &mut [Words], job: &Swapping, at: At) -> (JointDecision, bool) {
    let parts = || {
        job.asked
            .iter()
            .filter_map(|(place, asked)| Some((*place, set.slots.get(*place)?, asked)))
    };
    let mut changed = false;
    match job.verb {
        Verb::Settle(delta) => {
            for (place, slot, asked) in parts() {
                let delta = asked.delta(delta);
                changed |= slot.settle(&mut states[place], at, &asked.ask(), delta);
            }
            (job::done(), changed)
        }
        Verb::Reset => {
            for (place, ..) in parts() {
                changed |= !states[place].is_empty();
                states[place].clear();
            }
            (job::done(), changed)
        }
        Verb::Acquire => {
            let mut decisions = Decisions::rejected(job.asked.len());
            for ((place, slot, asked), out) in parts().zip(decisions.iter_mut()) {
                slot.decide(&states[place], at, &asked.ask(), out);
            }
            let allowed = decisions.iter().all(|decision| decision.allowed);
            for ((place, slot, asked), out) in parts().zip(decisions.iter_mut()) {
                if allowed {
                    if out.granted > 0 {
                        slot.take(&mut states[place], at, &asked.ask(), out.granted);
                        changed = true;
                    }
                    continue;
                }
                if out.allowed {
                    // It would have passed, but nothing is taken: say what is really left.
                    let look = asked.ask().look();
                    slot.decide(&states[place], at, &look, out);
                }
                changed |= asked.cost > 0 && slot.adopt(&mut states[place], at, &asked.ask());
            }
            (JointDecision { allowed, decisions }, changed)
        }
    }
}

#[cfg(test)]
mod tests;
