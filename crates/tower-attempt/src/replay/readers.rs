/// The number of a reader, in the order in which readers joined.
pub(super) type ReaderId = u32;

/// The readers of a record, the oldest first. A reader that was dropped or interrupted is not among them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Stored in place, because most records have one reader.
    first: Option<ReaderState>,
    others: Vec<ReaderState>,
    next: ReaderId,
}

#[derive(Debug)]
pub(super) struct ReaderState {
    pub(super) id: ReaderId,
    /// The number of the reader's attempt.
    pub(super) attempt: u32,
    /// The index of the reader's next frame among the recorded frames.
    pub(super) position: usize,
    /// Whether the reader's attempt is known to have ended without a response for the caller. The client may still read
    /// the body, to keep the connection usable.
    pub(super) over: bool,
}

impl Readers {
    /// Adds a reader that begins with the first frame.
    pub(super) fn add(&mut self, attempt: u32) -> ReaderId {
        let id = self.next;
        self.next += 1;
        let place = ReaderState {
            id,
            attempt,
            position: 0,
            over: false,
        };
        match self.is_empty() {
            true => self.first = Some(place),
            false => self.others.push(place),
        }
        id
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&ReaderState) -> bool) {
        self.first.take_if(|reader| !keep(reader));
        self.others.retain(keep);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ReaderState> {
        self.first.iter().chain(&self.others)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ReaderState> {
        self.first.iter_mut().chain(&mut self.others)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the oldest reader whose attempt is not known to have ended.
    pub(super) fn oldest_live(&self) -> Option<ReaderId> {
        let live = self.iter().find(|reader| !reader.over);
        live.map(|reader| reader.id)
    }
}
