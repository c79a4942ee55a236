//! Windows that the server counts: a request's cost is added to its window in one step, and taken back if that was too
//! much. So no more than the limit is admitted, whatever others do in between. While tokens are being taken back, another
//! request that would fit without them can be rejected.

mod excess;
mod foreign;

use tower_dist_ratelimit::{Decision, backend::Charge};

use super::{
    counted::MOST,
    failure::Failure,
    job::{Counting, Verb},
    key::Key,
    pipe::{Pipe, Then},
    reply::{Code, Meta, number},
    request::Command,
};

/// How often a charge is made again: when another request has taken something back meanwhile, when a window has ended,
/// when the counter was no number.
const TRIES: u32 = 4;

/// A counter above this is no count of ours: it is a foreign number, or has wrapped around.
const LARGEST: u64 = 1 << 62;

impl Pipe {
    /// Charges a window, or looks at it.
    pub(super) fn count(&mut self, mut job: Box<Counting>) {
        let time = self.time;
        (job.sent, job.nanos) = (self.now, time.nanos);
        let present = job.rule.present(time.nanos, &job.tag);
        job.number = present.map(|(number, _)| number);
        let Charge {
            cost, up_to, quota, ..
        } = job.charge;
        let limit = job.rule.limit(quota);
        let key = present_key(&job);
        let add = match job.verb {
            Verb::Reset => {
                let command = Command::new("md", &key).end("");
                return self.send(&command, Then::Settled(job));
            }
            Verb::Settle(delta) if delta < 0 => {
                // No more than was taken.
                let tokens = delta.unsigned_abs().min(cost).min(MOST);
                let command = Command::new("ma", &key).flag(" MD D", tokens).end("");
                return self.send(&command, Then::Settled(job));
            }
            Verb::Settle(delta) => delta.unsigned_abs().min(MOST),
            Verb::Acquire if cost > limit || cost == 0 => 0,
            Verb::Acquire => up_to.max(cost).min(limit),
        };
        job.over = add;
        if add == 0 {
            return self.send(&Command::new("mg", &key).end(" v t"), Then::Look(job));
        }
        let flags = match job.rule.server_window() {
            Some(_) => " t v c",
            None => " v",
        };
        let command = Command::new("ma", &key).ttl(" N", job.rule.ttl(time));
        let command = command.flag(" J", add).flag(" D", add).end(flags);
        self.send(&command, Then::Charged(job));
    }

    pub(super) fn looked(&mut self, mut job: Box<Counting>, answer: Result<Meta, Failure>) {
        match answer {
            Ok(meta) => {
                let ours = count(&meta).filter(|_| job.rule.ends(meta.ttl));
                job.ttl = ours.and(meta.ttl);
                let decision = decide(&job, ours.unwrap_or(0), self.time.nanos);
                job.decided(decision);
            }
            Err(failure) => job.answer(Err(failure)),
        }
    }

    pub(super) fn charged(&mut self, mut job: Box<Counting>, answer: Result<Meta, Failure>) {
        let meta = match answer {
            Ok(meta) => meta,
            Err(failure) if failure.is_no_number() => return self.inspect(job),
            Err(failure) => return job.answer(Err(failure)),
        };
        if meta.code == Code::NotStored {
            // Another request began the window in the same instant.
            return self.again(job, "another request was quicker");
        }
        let before = count(&meta).and_then(|count| count.checked_sub(job.over));
        let Some(before) = before.filter(|_| job.rule.ends(meta.ttl)) else {
            return self.inspect(job);
        };
        if let Verb::Settle(_) = job.verb {
            return job.done();
        }
        job.ttl = meta.ttl;
        // As of when it was charged: a window that has ended since counts for nothing, and would admit every request.
        let decision = decide(&job, before, job.nanos);
        let over = job.over.saturating_sub(decision.granted);
        if decision.allowed {
            job.tell(Ok(super::job::one(decision)));
        } else {
            job.refusal = decision;
        }
        if over > 0 {
            job.over = over;
            self.take_back(job, meta.cas);
        }
    }

    fn again(&mut self, mut job: Box<Counting>, why: &str) {
        if job.tries >= TRIES {
            return job.answer(Err(Failure::busy(why)));
        }
        job.tries += 1;
        if job
            .answer
            .as_ref()
            .is_some_and(|answer| !answer.is_closed())
        {
            self.count(job);
        }
    }
}

fn present_key(job: &Counting) -> Key {
    job.rule.keys.of(&job.tag, job.number)
}

/// Reads a counter. `None` if the value is no count. A counter that was counted down has spaces behind it.
fn count(meta: &Meta) -> Option<u64> {
    let value = meta.value.as_ref()?;
    let digits = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, spaces) = value.split_at(digits);
    let padded = spaces.iter().all(|&byte| byte == b' ');
    number(digits).filter(|&count| padded && count <= LARGEST)
}

/// Decides by the count before the charge.
fn decide(job: &Counting, count: u64, nanos: u64) -> Decision {
    let at = (nanos, &job.tag);
    job.rule.decide(count, job.number, job.ttl, at, &job.charge)
}
