//! States that are swapped: an item is read, all who wait for it are answered by what it says, and what that makes of it
//! is written if it is still the same. One success per round trip and key, whoever asks; so those who ask in this
//! process at the same time go together.

use std::{sync::Arc, time::Duration};

use tower_dist_ratelimit::{algorithm::Words, backend::toolkit::Tag};
use tower_jitter_retry::Backoff;

use super::{
    batch::Batch,
    failure::Failure,
    job::Swapping,
    key::value,
    pipe::{Pipe, Then},
    reply::{Code, Meta},
    request::Request,
    set::Set,
};

/// Whose item: the set's address, and the key.
pub(super) type CellKey = (usize, Tag);

/// The most that are answered by one write. More wait for the next.
const MOST: usize = 1024;

/// How many wait for one item.
const LONGEST_QUEUE: usize = 4096;

/// After a lost race the next attempt comes at once; after the second, up to so much later, and so on. With full jitter
/// those who collide spread out; the longest keeps a deadline of 50 ms within reach.
const FIRST_DELAY: Duration = Duration::from_millis(1);
const LONGEST_DELAY: Duration = Duration::from_millis(8);

/// One item that is asked about.
pub(super) struct Cell {
    set: Arc<Set>,
    /// Who waits for the next answer.
    waiting: Vec<Swapping>,
    /// What is being written.
    writing: Option<Batch>,
    losses: u32,
}

/// What is known of an item.
struct Known {
    states: Vec<Words>,
    /// None if there is no item.
    cas: Option<u64>,
}

impl Pipe {
    /// Asks about an item, together with others if it is being asked about.
    pub(super) fn swap(&mut self, job: Swapping) {
        let key = (Arc::as_ptr(&job.set).addr(), job.tag);
        if let Some(cell) = self.cells.get_mut(&key) {
            if cell.waiting.len() >= LONGEST_QUEUE {
                let full = format_args!("{LONGEST_QUEUE} requests wait for one key already");
                let _ = job.answer.send(Err(Failure::busy(full)));
            } else {
                cell.waiting.push(job);
            }
            return;
        }
        let cell = Cell {
            set: Arc::clone(&job.set),
            waiting: vec![job],
            writing: None,
            losses: 0,
        };
        self.cells.insert(key, cell);
        self.read_item(key);
    }

    fn read_item(&mut self, key: CellKey) {
        let Some(cell) = self.cells.get(&key) else {
            return;
        };
        let name = cell.set.keys.of(&key.1, None);
        let opaque = self.expect(Then::Read(key));
        Request::new(&mut self.out, "mg", &name, opaque).end(" v c");
    }

    pub(super) fn item_read(&mut self, key: CellKey, answer: Result<Meta, Failure>) {
        let Some(cell) = self.cells.get(&key) else {
            return;
        };
        match answer {
            Ok(meta) => {
                let known = Known::of(&cell.set, &meta);
                self.decide_item(key, known, false);
            }
            Err(failure) => self.fail_item(key, &failure),
        }
    }

    /// Answers those who wait by what is known. What nobody has looked at since the last write is only decided by if
    /// that is put to the test by writing.
    fn decide_item(&mut self, key: CellKey, known: Known, unseen: bool) {
        let Some(cell) = self.cells.get_mut(&key) else {
            return;
        };
        // Who has gone is not charged.
        cell.waiting.retain(|job| !job.answer.is_closed());
        if cell.waiting.is_empty() {
            self.cells.remove(&key);
            return;
        }
        let jobs = cell.waiting.drain(..cell.waiting.len().min(MOST)).collect();
        let batch = Batch::decide(&cell.set, known.states, jobs, self.time);
        let Some(ttl) = batch.write else {
            if unseen {
                let jobs = batch.jobs.into_iter().map(|(job, _)| job);
                cell.waiting.splice(..0, jobs);
                return self.read_item(key);
            }
            answer(batch);
            return self.next_round(key, None);
        };
        let (name, value) = (cell.set.keys.of(&key.1, None), value::write(&batch.states));
        cell.writing = Some(batch);
        let opaque = self.expect(Then::Wrote(key));
        let request = Request::set(&mut self.out, &name, value.len(), opaque).ttl(" T", ttl);
        match known.cas {
            Some(cas) => request.flag(" C", cas).value(" c", &value),
            // Only if there still is none.
            None => request.value(" ME c", &value),
        }
    }

    pub(super) fn item_written(&mut self, key: CellKey, said: Result<Meta, Failure>) {
        let Some(cell) = self.cells.get_mut(&key) else {
            return;
        };
        let meta = match said {
            Ok(meta) => meta,
            Err(failure) => return self.fail_item(key, &failure),
        };
        let Some(batch) = cell.writing.take() else {
            return;
        };
        if meta.code == Code::Done {
            cell.losses = 0;
            let known = meta.cas.filter(|&cas| cas > 0).map(|cas| Known {
                states: batch.states.clone(),
                cas: Some(cas),
            });
            answer(batch);
            return self.next_round(key, known);
        }
        // Somebody else was quicker.
        let (timeout, now) = (self.timeout, self.now);
        let mut again = Vec::with_capacity(batch.jobs.len());
        for (job, _) in batch.jobs {
            if now.saturating_duration_since(job.since) < timeout {
                again.push(job);
            } else {
                let late = format_args!("others changed the key again and again for {timeout:?}");
                let _ = job.answer.send(Err(Failure::busy(late)));
            }
        }
        cell.waiting.splice(..0, again);
        cell.losses += 1;
        let mut delays = Backoff::exponential(FIRST_DELAY, LONGEST_DELAY).schedule();
        match cell.losses.checked_sub(2) {
            None => self.read_item(key),
            Some(before) => {
                let place = usize::try_from(before.min(8)).unwrap_or(8);
                let delay = delays.nth(place).unwrap_or(LONGEST_DELAY);
                self.later.push((self.now + delay, key));
            }
        }
    }

    /// The pause after a lost race is over.
    pub(super) fn item_due(&mut self, key: CellKey) {
        self.read_item(key);
    }

    /// Goes on with those who have come meanwhile.
    fn next_round(&mut self, key: CellKey, known: Option<Known>) {
        let Some(cell) = self.cells.get(&key) else {
            return;
        };
        match known {
            _ if cell.waiting.is_empty() => {
                self.cells.remove(&key);
            }
            Some(known) => self.decide_item(key, known, true),
            None => self.read_item(key),
        }
    }

    fn fail_item(&mut self, key: CellKey, failure: &Failure) {
        let Some(cell) = self.cells.remove(&key) else {
            return;
        };
        let written = cell.writing.into_iter().flat_map(|batch| batch.jobs);
        let jobs = written.map(|(job, _)| job).chain(cell.waiting);
        for job in jobs {
            let _ = job.answer.send(Err(failure.clone()));
        }
    }
}

impl Known {
    /// What is no state of ours counts as nothing, and is replaced.
    fn of(set: &Set, meta: &Meta) -> Self {
        let unused = || vec![Words::new(); set.slots.len()];
        let states = meta.value.as_ref();
        let states = states.and_then(|value| value::read(value, set.slots.len()));
        let states = states.map_or_else(unused, |mut states| {
            for (slot, words) in set.slots.iter().zip(&mut states) {
                if !slot.holds(words) {
                    words.clear();
                }
            }
            states
        });
        let cas = meta.cas.filter(|_| meta.code == Code::Value);
        Self { states, cas }
    }
}

fn answer(batch: Batch) {
    for (job, verdict) in batch.jobs {
        let _ = job.answer.send(Ok(verdict));
    }
}
