//! What is put back into windows.

use smallvec::SmallVec;

use super::{count, present};
use crate::{
    failure::Failure,
    job::Counting,
    key::Key,
    pipe::{Pipe, Then},
    reply::Meta,
    request::Request,
};

impl Pipe {
    /// Puts back what was taken: from the newest windows that have it.
    pub(super) fn put_back(&mut self, mut job: Box<Counting>, tokens: u64) {
        let key = present(&job);
        if job.rule.older() == 0 {
            let opaque = self.expect(Then::Settled(job));
            return Request::new(&mut self.out, "ma", &key, opaque)
                .flag(" MD D", tokens)
                .end("");
        }
        job.over = tokens;
        let opaque = self.expect(Then::Refund(job));
        Request::new(&mut self.out, "mg", &key, opaque).end(" v");
    }

    pub(crate) fn refund(&mut self, mut job: Box<Counting>, answer: Result<Meta, Failure>) {
        let older = self.take_parts(&mut job);
        let meta = match older.and(answer) {
            Ok(meta) => meta,
            Err(failure) => return job.answer(Err(failure)),
        };
        let mut counts: SmallVec<[u64; 4]> = SmallVec::new();
        counts.push(count(&meta).unwrap_or(0));
        counts.extend_from_slice(&job.older);
        let mut left = job.over;
        let mut backs: SmallVec<[(Key, u64); 2]> = SmallVec::new();
        for (age, counted) in (0..).zip(counts) {
            let back = left.min(counted);
            left -= back;
            if back > 0 {
                let number = job.number.and_then(|number| number.checked_sub(age));
                backs.push((job.rule.keys.of(&job.tag, number), back));
            }
        }
        let Some((last, back)) = backs.pop() else {
            return job.done();
        };
        for (key, back) in backs {
            let opaque = self.expect(Then::Nothing);
            Request::new(&mut self.out, "ma", &key, opaque)
                .flag(" MD D", back)
                .end("");
        }
        let opaque = self.expect(Then::Settled(job));
        Request::new(&mut self.out, "ma", &last, opaque)
            .flag(" MD D", back)
            .end("");
    }
}
