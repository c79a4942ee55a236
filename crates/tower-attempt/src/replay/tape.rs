use std::collections::VecDeque;

use super::frame::Recorded;

/// The frames that were read and may be needed again. Positions count all frames from the first.
#[derive(Debug)]
pub(super) struct Tape {
    frames: VecDeque<Recorded>,
    /// The position of the first frame that is still held.
    start: usize,
    /// What all frames so far cost, in bytes, those that were freed included: whether an attempt is
    /// interrupted depends on the body alone, and not on how well it keeps step.
    recorded: usize,
    /// The most that is recorded, in bytes.
    limit: usize,
}

impl Tape {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            start: 0,
            recorded: 0,
            limit,
        }
    }

    /// The position of the frame that the source gives next.
    pub(super) fn end(&self) -> usize {
        self.start + self.frames.len()
    }

    pub(super) fn get(&self, position: usize) -> Option<&Recorded> {
        self.frames.get(position.checked_sub(self.start)?)
    }

    pub(super) fn has_room(&self, cost: usize) -> bool {
        self.recorded.saturating_add(cost) <= self.limit
    }

    pub(super) fn push(&mut self, frame: Recorded) {
        self.recorded = self.recorded.saturating_add(frame.cost());
        self.frames.push_back(frame);
    }

    /// Takes out the first frame.
    pub(super) fn pop(&mut self) -> Option<Recorded> {
        let frame = self.frames.pop_front()?;
        self.start += 1;
        Some(frame)
    }

    /// Counts a frame that is not held. Nothing may be held before it.
    pub(super) fn pass(&mut self) {
        debug_assert!(
            self.frames.is_empty(),
            "a frame would be missing in between"
        );
        self.start += 1;
    }

    /// Takes out all that is before `position`, for the caller to drop where no lock is held.
    pub(super) fn cut(&mut self, position: usize) -> VecDeque<Recorded> {
        let count = position.saturating_sub(self.start).min(self.frames.len());
        if count == 0 {
            return VecDeque::new();
        }
        let rest = self.frames.split_off(count);
        self.start += count;
        std::mem::replace(&mut self.frames, rest)
    }
}
