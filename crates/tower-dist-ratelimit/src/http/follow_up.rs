use std::sync::Arc;

use http::HeaderMap;

use super::{HttpLimits, ResponseHead, Stamp};
use crate::RateLimitHandle;

/// What is left to do when a request that passed is answered. Small, because it is part of every future.
#[derive(Default)]
pub(crate) struct FollowUp {
    pub(super) stamp: Option<Stamp>,
    pub(super) refund: Option<Box<Refund>>,
}

pub(super) struct Refund {
    pub(super) http: Arc<HttpLimits>,
    pub(super) handle: RateLimitHandle,
}

impl From<Option<Stamp>> for FollowUp {
    fn from(stamp: Option<Stamp>) -> Self {
        Self {
            stamp,
            refund: None,
        }
    }
}

impl FollowUp {
    /// The inner service has answered; or failed, without a response.
    pub(crate) fn answered(&mut self, response: Option<ResponseHead<'_>>) {
        if let Some(Refund { http, handle }) = self.refund.take().map(|refund| *refund)
            && let Some(refund_when) = &http.answers.refund_when
            && refund_when(response)
        {
            handle.settle(0);
        }
    }

    pub(crate) fn put_on(&mut self, fields: &mut HeaderMap) {
        if let Some(stamp) = self.stamp.take() {
            stamp.put_on(fields);
        }
    }
}
