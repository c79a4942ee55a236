//! Windows that the server counts: what a request costs is added to its window in one step, and taken back if that was
//! too much. So no more is admitted than the limit, whatever others do in between; while something is being taken back
//! another request can be refused that it would have left room for.

mod excess;
mod foreign;
mod refund;

use tower_dist_ratelimit::Decision;

use super::{
    counted::{Counts, MOST},
    failure::Failure,
    job::{Counting, Verb},
    key::{Key, bits},
    pipe::{Pipe, Then},
    reply::{Code, Meta, number},
    request::Request,
    slot::At,
};

/// How often a question is asked again: when somebody else has taken something back meanwhile, when a window has ended,
/// when what was there was no number.
const TRIES: u32 = 4;

/// A counter above this is no count of ours: it is somebody else's number, or has wrapped around.
const LARGEST: u64 = 1 << 62;

impl Pipe {
    /// Asks about a window.
    pub(super) fn count(&mut self, mut job: Box<Counting>) {
        let time = self.time;
        let at = At {
            nanos: time.nanos,
            key: bits(&job.tag),
        };
        (job.sent, job.nanos) = (self.now, time.nanos);
        job.number = job.rule.number(at);
        if job.verb == Verb::Reset {
            return self.forget(job);
        }
        let limit = job.rule.limit(job.asked.quota);
        let add = match job.verb {
            Verb::Acquire if job.asked.cost > limit => 0,
            Verb::Acquire if job.asked.cost == 0 => 0,
            Verb::Acquire => job.asked.want.min(limit),
            Verb::Settle(delta) => {
                let delta = job.asked.delta(delta);
                if delta < 0 {
                    self.read_older(&job);
                    return self.put_back(job, delta.unsigned_abs().min(MOST));
                }
                delta.unsigned_abs().min(MOST)
            }
            Verb::Reset => 0,
        };
        let (key, ttl) = (present(&job), job.rule.ttl(time));
        job.over = add;
        if add == 0 {
            self.read_older(&job);
            let opaque = self.expect(Then::Look(job));
            return Request::new(&mut self.out, "mg", &key, opaque).end(" v t");
        }
        let flags = match job.rule.fixed_window_from_first_request() {
            Some(_) => " t v c",
            None => " v",
        };
        let charge = |out, opaque| {
            let request = Request::new(out, "ma", &key, opaque).ttl(" N", ttl);
            request.flag(" J", add).flag(" D", add).end(flags);
        };
        let settles = job.verb != Verb::Acquire;
        if job.rule.older() == 0 || settles {
            let opaque = self.expect(Then::Charged(job));
            return charge(&mut self.out, opaque);
        }
        // What others count is read after this is added, so that of two who do this at the same time one sees the other.
        let opaque = self.expect(Then::Added);
        charge(&mut self.out, opaque);
        self.read_older(&job);
        let ahead = job.number.map(|number| number.saturating_add(1));
        let ahead = job.rule.keys.of(&job.tag, ahead);
        let opaque = self.expect(Then::Beside(job));
        Request::new(&mut self.out, "mg", &ahead, opaque).end(" v");
    }

    fn read_older(&mut self, job: &Counting) {
        for age in 1..=job.rule.older() {
            let number = job.number.and_then(|number| number.checked_sub(age));
            let key = job.rule.keys.of(&job.tag, number);
            let opaque = self.expect(Then::Part);
            Request::new(&mut self.out, "mg", &key, opaque).end(" v");
        }
    }

    /// The next window's count: of those for whom it has begun already.
    pub(super) fn beside(&mut self, mut job: Box<Counting>, answer: Result<Meta, Failure>) {
        let charged = self.added.take();
        match (charged, answer) {
            (Some(charged), Ok(meta)) => {
                job.ahead = count(&meta).unwrap_or(0);
                self.charged(job, charged);
            }
            (_, Err(failure)) => job.answer(Err(failure)),
            (None, _) => job.answer(Err(Failure::new("an answer without its question"))),
        }
    }

    /// The count of an older window.
    pub(super) fn part(&mut self, answer: Result<Meta, Failure>) {
        self.parts
            .push(answer.map(|meta| count(&meta).unwrap_or(0)));
    }

    /// Gives the question the counts that were read for it; one that is not known fails it.
    fn take_parts(&mut self, job: &mut Counting) -> Result<(), Failure> {
        job.older = self.parts.drain(..).collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(super) fn looked(&mut self, mut job: Box<Counting>, answer: Result<Meta, Failure>) {
        let older = self.take_parts(&mut job);
        match older.and(answer) {
            Ok(meta) => {
                let ours = count(&meta).filter(|_| job.rule.ends(meta.ttl));
                job.ttl = ours.and(meta.ttl);
                let present = ours.unwrap_or(0);
                let decision = decide(&job, present, self.time.nanos);
                job.decided(decision);
            }
            Err(failure) => job.answer(Err(failure)),
        }
    }

    pub(super) fn charged(&mut self, mut job: Box<Counting>, answer: Result<Meta, Failure>) {
        let older = self.take_parts(&mut job);
        let meta = match older.and(answer) {
            Ok(meta) => meta,
            Err(failure) if failure.is_no_number() => return self.inspect(job),
            Err(failure) => return job.answer(Err(failure)),
        };
        if meta.code == Code::NotStored {
            // Somebody else began the window in the same instant.
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
        // As of when it was charged: a window that has ended since counts for nothing, and would admit everybody.
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

    fn forget(&mut self, job: Box<Counting>) {
        for age in 1..=job.rule.older() {
            let number = job.number.and_then(|number| number.checked_sub(age));
            let key = job.rule.keys.of(&job.tag, number);
            let opaque = self.expect(Then::Nothing);
            Request::new(&mut self.out, "md", &key, opaque).end("");
        }
        let key = present(&job);
        let opaque = self.expect(Then::Settled(job));
        Request::new(&mut self.out, "md", &key, opaque).end("");
    }
}

fn present(job: &Counting) -> Key {
    job.rule.keys.of(&job.tag, job.number)
}

/// What a counter says; none if that is no count. One that was counted down has spaces behind it.
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

/// Decides on what was there before.
fn decide(job: &Counting, present: u64, nanos: u64) -> Decision {
    let at = At {
        nanos,
        key: bits(&job.tag),
    };
    let counts = Counts {
        // In the next one it is counted for longer, but how long is known to those who are there.
        present: present.saturating_add(job.ahead),
        older: &job.older,
        number: job.number,
        ttl: job.ttl,
    };
    let mut decision = Decision::reject(0, 0, None, std::time::Duration::ZERO);
    let mut ask = job.asked.ask();
    ask.want = ask.want.min(job.rule.limit(job.asked.quota)).max(ask.cost);
    job.rule.decide(counts, at, &ask, &mut decision);
    decision
}
