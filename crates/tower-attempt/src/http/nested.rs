use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use super::{HttpRequest, HttpResponse};
use crate::Budget;

/// The marks by which nested retry layers avoid multiplying their attempts.
///
/// - If a layer below gives up on the response to a request that is not marked as a retry, the response carries
///   [`Exhausted`]. The layer above then does not retry the request. The mark names the budget of the layer below, so
///   that the layer above does not record the failure there again.
/// - Each retry carries [`RetriedAbove`], so a layer below does not retry it.
/// - An error cannot carry a mark. So a layer below that gives up on a retry's error sets the flag in that retry's
///   [`RetriedAbove`]. The layer above reads the flag only if the attempt before that retry also ended with an error.
///   If the flag is set, the layer above stops. Layers in one task need no flag, because each layer counts the retries
///   of the layers below.
///
/// A layer does not mark its first attempt, because the insert into the extensions would cost every call. It does not
/// mark a `reqwest::Request`, whose extensions are private.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nested {
    /// The mark of a retry layer above, if this request carries one.
    above: Option<RetriedAbove>,
    /// The mark of this layer's last retry, if the inner service ended the attempt before that retry with an error.
    own: Option<RetriedAbove>,
    /// Whether the inner service ended the last attempt with an error, which a layer below may have retried already.
    after_error: bool,
}

/// A mark in the extensions of a retry's request. A layer below sets the flag when it gives up on the retry's error.
#[derive(Clone, Debug, Default)]
struct RetriedAbove(Arc<AtomicBool>);

/// A mark in the extensions of a failed response on which a retry layer gave up. Holds the budget of that layer.
#[derive(Clone, Debug)]
struct Exhausted(Budget);

impl Nested {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        Self {
            above: extensions.get().cloned(),
            ..Self::default()
        }
    }

    pub(crate) fn is_retried_above(&self) -> bool {
        self.above.is_some()
    }

    /// Marks the request of this layer's next retry.
    pub(crate) fn mark<Req: HttpRequest>(&mut self, request: &mut Req) {
        self.own = std::mem::take(&mut self.after_error).then(RetriedAbove::default);
        if let Some(extensions) = request.extensions_mut() {
            extensions.insert(self.own.clone().unwrap_or_default());
        }
    }

    /// Whether a mark shows that a layer below has given up on this layer's last attempt.
    pub(crate) fn was_given_up<Res: HttpResponse, E>(&mut self, outcome: &Result<Res, E>) -> bool {
        self.after_error = outcome.is_err();
        match outcome {
            Ok(response) => response.extensions().get::<Exhausted>().is_some(),
            Err(_) => {
                let set = |flag: &RetriedAbove| flag.0.load(Ordering::Relaxed);
                self.own.as_ref().is_some_and(set)
            }
        }
    }

    /// Whether a response's mark shows that a layer below has given up on this failure and records failures on
    /// `budget`.
    pub(crate) fn is_recorded(extensions: &Extensions, budget: &Budget) -> bool {
        let mark = extensions.get();
        mark.is_some_and(|Exhausted(recorded)| recorded.is_same(budget))
    }

    /// Marks a failure on which this layer gives up, for the layers above. A mark that a layer below has set stays.
    ///
    /// `response` holds the extensions of the failed response, or `None` after an error.
    pub(crate) fn give_up(&self, response: Option<&mut Extensions>, budget: &Budget) {
        match (response, &self.above) {
            (Some(extensions), None) => {
                extensions.get_or_insert_with(|| Exhausted(budget.clone()));
            }
            (None, Some(above)) => above.0.store(true, Ordering::Relaxed),
            // `Exhausted` on the response to a retry would keep the layer above from sending another retry. An error
            // has no extensions, and without a `RetriedAbove` there is no flag to set.
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}
