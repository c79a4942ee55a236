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

/// The place of one reader.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: Id,
    /// The index of the next frame among the frames that are held.
    pub(super) position: usize,
    /// Whether its attempt has ended. Its client may read on to keep the connection.
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

    /// The oldest reader whose attempt has not ended.
    pub(super) fn oldest_live(&self) -> Option<Id> {
        let live = self.iter().find(|reader| !reader.over);
        live.map(|reader| reader.id)
    }
}
