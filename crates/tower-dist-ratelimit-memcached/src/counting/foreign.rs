//! What is found where a limit counts, and is no count.

use super::{count, present_key};
use crate::{
    failure::Failure,
    job::Counting,
    pipe::{Pipe, Then},
    reply::{Code, Meta},
    request::Command,
};

/// What somebody else's number stays in the way with.
const FOREIGN: &str = "something else is kept where a limit counts";

impl Pipe {
    /// Sees what is there that is no count, to delete that and nothing else.
    pub(super) fn inspect(&mut self, job: Box<Counting>) {
        let command = Command::new("mg", &present_key(&job)).end(" v t c");
        self.send(&command, Then::Inspected(job));
    }

    pub(crate) fn inspected(&mut self, job: Box<Counting>, answer: Result<Meta, Failure>) {
        let meta = match answer {
            Ok(meta) => meta,
            Err(failure) => return job.answer(Err(failure)),
        };
        let ours = count(&meta).is_some() && job.rule.ends(meta.ttl);
        let fine = meta.code == Code::Miss || ours;
        let (false, Some(cas)) = (fine, meta.cas) else {
            return self.again(job, FOREIGN);
        };
        let command = Command::new("md", &present_key(&job))
            .flag(" C", cas)
            .end("");
        self.send(&command, Then::Healed(job));
    }

    pub(crate) fn healed(&mut self, job: Box<Counting>, answer: Result<Meta, Failure>) {
        match answer {
            Ok(_) => self.again(job, FOREIGN),
            Err(failure) => job.answer(Err(failure)),
        }
    }
}
