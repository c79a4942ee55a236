use std::sync::Arc;

use smallvec::SmallVec;

use super::Shared;
use crate::backend::Charge;

/// An operation that returns tokens. It clears the shortages of its keys when it starts and when it
/// ends, because the backend books the tokens at some time in between.
pub(super) struct Relief {
    shared: Arc<Shared>,
    tags: SmallVec<[u64; 2]>,
}

impl Relief {
    pub(super) fn new(shared: &Arc<Shared>, charges: &[Charge<'_>]) -> Self {
        let tags = charges.iter().map(|charge| shared.table.tag(charge));
        let relief = Self {
            shared: Arc::clone(shared),
            tags: tags.collect(),
        };
        relief.relieve();
        relief
    }

    fn relieve(&self) {
        let Shared { table, .. } = &*self.shared;
        self.tags
            .iter()
            .for_each(|&tag| table.set(tag).relieve(tag));
    }
}

impl Drop for Relief {
    fn drop(&mut self) {
        self.relieve();
    }
}
