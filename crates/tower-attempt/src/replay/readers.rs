/// Which reader, in the order in which they came.
pub(super) type Id = u32;

/// Where each reader is. One that is not here any more was dropped or interrupted.
#[derive(Debug)]
pub(super) struct Readers {
    /// In place, since there is one only on the way of a success.
    first: Option<Place>,
    others: Vec<Place>,
    next: Id,
}

#[derive(Debug)]
pub(super) struct Place {
    id: Id,
    /// The position of the frame that it reads next.
    pub(super) position: usize,
    /// Its attempt has ended, even if its client reads on to keep the connection.
    over: bool,
}

impl Readers {
    pub(super) fn new() -> Self {
        Self {
            first: None,
            others: Vec::new(),
            next: 0,
        }
    }

    /// Adds a reader that begins with the first frame.
    pub(super) fn add(&mut self) -> Id {
        let place = Place {
            id: self.next,
            position: 0,
            over: false,
        };
        self.next += 1;
        let id = place.id;
        match self.is_empty() {
            true => self.first = Some(place),
            false => self.others.push(place),
        }
        id
    }

    pub(super) fn remove(&mut self, id: Id) {
        self.retain(|reader| reader.id != id);
    }

    pub(super) fn keep_only(&mut self, id: Id) {
        self.retain(|reader| reader.id == id);
    }

    pub(super) fn clear(&mut self) {
        self.retain(|_| false);
    }

    fn retain(&mut self, keep: impl Fn(&Place) -> bool) {
        self.first.take_if(|reader| !keep(reader));
        self.others.retain(keep);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    pub(super) fn is_alone(&self) -> bool {
        usize::from(self.first.is_some()) + self.others.len() == 1
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Place> {
        let mut all = self.first.iter_mut().chain(&mut self.others);
        all.find(|reader| reader.id == id)
    }

    fn iter(&self) -> impl Iterator<Item = &Place> {
        self.first.iter().chain(&self.others)
    }

    /// The position before which everyone has read.
    pub(super) fn slowest(&self) -> Option<usize> {
        self.iter().map(|reader| reader.position).min()
    }

    /// All attempts so far have ended.
    pub(super) fn end_all(&mut self) {
        let all = self.first.iter_mut().chain(&mut self.others);
        all.for_each(|reader| reader.over = true);
    }

    /// The oldest attempt that has not ended.
    pub(super) fn oldest_live(&self) -> Option<Id> {
        let live = self.iter().filter(|reader| !reader.over);
        live.map(|reader| reader.id).min()
    }

    pub(super) fn oldest(&self) -> Option<Id> {
        self.iter().map(|reader| reader.id).min()
    }
}
