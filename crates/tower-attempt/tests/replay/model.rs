//! Predicts the frames of each reader from a plain list of frames.

use crate::script::Piece;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    Reading,
    /// Reading, although its attempt has ended.
    Over,
    Interrupted,
    /// The source has failed, and this reader receives the error.
    Failed,
    /// Finished for any reason.
    Gone,
}

impl Is {
    fn reads(self) -> bool {
        matches!(self, Self::Reading | Self::Over)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Frame(Piece),
    End,
    Broken,
    Interrupted,
    Pending,
}

/// The effect of a poll on the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Untouched,
    Frame,
    Failed,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) frames: Vec<Piece>,
    limit: usize,
    /// The number of frames that the source has returned.
    pulled: usize,
    pub(crate) saved: bool,
    /// State and position of each reader, the oldest first.
    pub(crate) readers: Vec<(Is, usize)>,
}

impl Model {
    pub(crate) fn new(frames: Vec<Piece>, limit: usize) -> Self {
        Self {
            frames,
            limit,
            pulled: 0,
            saved: true,
            readers: vec![(Is::Reading, 0)],
        }
    }

    /// Adds a reader, if another one may join.
    pub(crate) fn join(&mut self, retry: bool) -> bool {
        if self.saved {
            for (is, _) in &mut self.readers {
                if retry && *is == Is::Reading {
                    *is = Is::Over;
                }
            }
            self.readers.push((Is::Reading, 0));
        }
        self.saved
    }

    /// Predicts the result of a poll that had this effect on the source. `ended`: the source is at its end.
    pub(crate) fn poll(&mut self, reader: usize, source: Source, ended: bool) -> Seen {
        let (is, position) = self.readers[reader];
        match is {
            Is::Gone => return Seen::End,
            Is::Interrupted => return self.finish(reader, Seen::Interrupted),
            Is::Failed => return self.finish(reader, Seen::Broken),
            _ => {}
        }
        if position < self.pulled {
            assert_eq!(source, Source::Untouched, "read ahead");
            self.readers[reader].1 += 1;
            return Seen::Frame(self.frames[position].clone());
        }
        // After a frame beyond the limit, an ended attempt does not read on from the source.
        let recorded: usize = self.frames[..self.pulled].iter().map(Piece::cost).sum();
        let is_live = self.readers.iter().any(|(is, _)| *is == Is::Reading);
        if self.saved && recorded > self.limit && !is_live && !ended {
            assert_eq!(source, Source::Untouched, "exceeds the limit twice");
            return self.finish(reader, Seen::Interrupted);
        }
        match source {
            Source::Untouched if ended => self.finish(reader, Seen::End),
            Source::Untouched => Seen::Pending,
            Source::Failed => {
                self.saved = false;
                let live = self.readers.iter().position(|(is, _)| *is == Is::Reading);
                let receiver = live.unwrap_or(reader);
                self.interrupt(|_| true);
                if receiver == reader {
                    return self.finish(reader, Seen::Broken);
                }
                self.readers[receiver].0 = Is::Failed;
                self.finish(reader, Seen::Interrupted)
            }
            Source::Frame => self.pull(reader),
        }
    }

    fn pull(&mut self, reader: usize) -> Seen {
        let frame = self.frames[self.pulled].clone();
        let count = self.readers.iter().filter(|(is, _)| is.reads()).count();
        let recorded: usize = self.frames[..self.pulled].iter().map(Piece::cost).sum();
        self.pulled += 1;
        let needed = self.saved || count > 1;
        if needed && recorded + frame.cost() > self.limit {
            let live = self.readers.iter().position(|(is, _)| *is == Is::Reading);
            let reads = self.readers.iter().position(|(is, _)| is.reads());
            let winner = live.or(reads.filter(|_| !self.saved));
            self.saved &= winner.is_none();
            self.interrupt(|other| Some(other) != winner);
            if winner != Some(reader) {
                return self.finish(reader, Seen::Interrupted);
            }
        }
        self.readers[reader].1 += 1;
        Seen::Frame(frame)
    }

    fn interrupt(&mut self, whom: impl Fn(usize) -> bool) {
        for (reader, (is, _)) in self.readers.iter_mut().enumerate() {
            if is.reads() && whom(reader) {
                *is = Is::Interrupted;
            }
        }
    }

    pub(crate) fn finish(&mut self, reader: usize, seen: Seen) -> Seen {
        self.readers[reader].0 = Is::Gone;
        seen
    }
}
