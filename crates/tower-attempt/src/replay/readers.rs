/// The number of a reader, in the order in which readers joined.
pub(super) type Id = u32;

/// The readers of a record, the oldest first. A reader that was dropped or interrupted is not among them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Stored in place, because most records have one reader.
    first: Option<Place>,
    others: Vec<Place>,
    next: Id,
}

/// A reader's position in the record.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: Id,
    /// The index of the reader's next frame among the recorded frames.
    pub(super) position: usize,
    /// Whether the reader's attempt has ended. The client may still read the body, to keep the connection usable.
    pub(super) over: bool,
}

impl Readers {
    /// Adds a reader that begins with the first frame.
    pub(super) fn add(&mut self) -> Id {
        let id = self.next;
        self.next += 1;
        let place = Place {
            id,
            position: 0,
            over: false,
        };
        match self.is_empty() {
            true => self.first = Some(place),
            false => self.others.push(place),
        }
        id
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Place) -> bool) {
        self.first.take_if(|reader| !keep(reader));
        self.others.retain(keep);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.first.iter().chain(&self.others)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.first.iter_mut().chain(&mut self.others)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the oldest reader whose attempt has not ended.
    pub(super) fn oldest_live(&self) -> Option<Id> {
        let live = self.iter().find(|reader| !reader.over);
        live.map(|reader| reader.id)
    }
}
