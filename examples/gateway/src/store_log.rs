//! Says when the store of the limits is not asked any more, and when it is again.

use tower_dist_ratelimit::Observer;
use tower_dist_ratelimit::backend::BackendError;

use crate::log;

/// One line on stderr for each change; requests are not told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreLog {
    /// How many gateways share the limits.
    pub(crate) fleet: u32,
}

impl Observer for StoreLog {
    fn circuit_opened(&self, error: &BackendError) {
        let share = match self.fleet {
            1 => "the whole of every limit".to_owned(),
            fleet => format!("a share of 1/{fleet} of every limit"),
        };
        log(&format!(
            "{error}; until it does again, this gateway counts by itself, with {share}"
        ));
    }

    fn circuit_closed(&self) {
        log("the rate limit's store decides again");
    }
}
