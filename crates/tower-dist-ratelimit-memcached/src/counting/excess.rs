//! What was added to a window and was too much.

use std::time::Duration;

use super::{TRIES, count, decide, present_key};
use crate::{
    failure::Failure,
    job::Counting,
    pipe::{Pipe, Then},
    reply::{Code, Meta},
    request::Command,
};

/// How often it is tried to take something back from a window that others are charging.
const TAKE_BACKS: u32 = 16;

impl Pipe {
    /// Takes back what was too much. From a window that the server ends, only if it is still the same one.
    pub(super) fn take_back(&mut self, job: Box<Counting>, cas: Option<u64>) {
        let (key, over) = (present_key(&job), job.over);
        let command = Command::new("ma", &key).flag(" MD D", over);
        let command = match cas.filter(|_| job.rule.server_window().is_some()) {
            Some(cas) => command.flag(" C", cas).end(" v t c"),
            None => command.end(" v"),
        };
        self.send(&command, Then::TakenBack(job));
    }

    pub(crate) fn taken_back(&mut self, mut job: Box<Counting>, answer: Result<Meta, Failure>) {
        let meta = match answer {
            Ok(meta) => meta,
            Err(failure) => return job.answer(Err(failure)),
        };
        match meta.code {
            Code::Exists if job.tries < TAKE_BACKS => {
                job.tries += 1;
                let command = Command::new("mg", &present_key(&job)).end(" v t c");
                self.send(&command, Then::Reread(job));
            }
            // It stays charged until the window ends.
            Code::Exists => refuse(job),
            _ => self.settled_back(job, count(&meta)),
        }
    }

    /// The window was changed by somebody else. Or it is already the next one, from which nothing must be taken.
    pub(crate) fn reread(&mut self, job: Box<Counting>, answer: Result<Meta, Failure>) {
        let meta = match answer {
            Ok(meta) => meta,
            Err(failure) => return job.answer(Err(failure)),
        };
        let window = job.rule.server_window().unwrap_or_default();
        // The next one has less left than this had, too, but only when as much time has passed as a window takes, less a
        // tick of the server's clock at each end.
        let ticks = Duration::from_secs(2);
        let same = meta.ttl.is_some_and(|ttl| Some(ttl) <= job.ttl)
            && self.now.saturating_duration_since(job.sent) < window.saturating_sub(ticks);
        match (meta.code, meta.cas) {
            (Code::Value, Some(cas)) if same => self.take_back(job, Some(cas)),
            (Code::Value, _) if job.ttl >= meta.ttl => refuse(job),
            _ => self.settled_back(job, None),
        }
    }

    /// What was too much is gone, and so much is left; none if the window is over.
    pub(super) fn settled_back(&mut self, job: Box<Counting>, left: Option<u64>) {
        if job.answer.is_none() {
            return;
        }
        let decision = decide(&job, left.unwrap_or(0), self.time.nanos);
        if !decision.allowed {
            return job.decided(decision);
        }
        // There is room: what was in the way has been taken back, too.
        if job.tries < TRIES {
            return self.again(job, "");
        }
        refuse(job);
    }
}

/// Says what was decided before anything was taken back.
fn refuse(job: Box<Counting>) {
    let refusal = job.refusal;
    job.decided(refusal);
}
