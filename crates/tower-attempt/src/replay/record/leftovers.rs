use std::collections::VecDeque;
use std::task::Waker;

use http_body::Body;

use crate::replay::ReplayBody;
use crate::replay::frame::Recorded;

/// What is to be dropped where no lock is held.
#[must_use]
#[expect(dead_code, reason = "nothing is read here, but dropped")]
pub(in crate::replay) struct Leftovers<S: Body> {
    pub(super) frames: VecDeque<Recorded>,
    pub(super) source: Option<ReplayBody<S>>,
    pub(super) waker: Option<Waker>,
}

impl<S: Body> Leftovers<S> {
    pub(super) fn none() -> Self {
        Self {
            frames: VecDeque::new(),
            source: None,
            waker: None,
        }
    }
}
