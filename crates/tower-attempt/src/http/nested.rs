use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use super::{HttpRequest, HttpResponse};
use crate::Budget;

/// The marks by which nested retry layers avoid multiplying their attempts.
///
/// - If a layer below gives up on a first attempt's response, the response carries [`Exhausted`], so the layer above
///   does not retry it. The mark names the budget that counts the failure, so no layer records it there again.
/// - Each retry carries [`RetriedAbove`], so a layer below does not retry it.
/// - An error cannot carry a mark. So a layer below that gives up on a retry's error sets the flag in that retry's
///   [`RetriedAbove`]. The layer above reads the flag only if the attempt before also ended with an error. If the flag
///   is set, the layer above stops. Layers in one task need no flag, because they count each other's retries.
///
/// A first attempt carries no mark, because the insert into its extensions would cost every call. A `reqwest::Request`
/// carries none, because its extensions are private.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nested {
    /// The mark of the layer above, if this request is its extra attempt.
    above: Option<RetriedAbove>,
    /// The mark of this layer's last extra attempt, if that attempt followed an error.
    own: Option<RetriedAbove>,
    /// Whether the last outcome was an error, which a layer below may have retried already.
    after_error: bool,
}

/// An extension of a retry. A layer below sets the flag when it gives up on an error of the retry.
#[derive(Clone, Debug, Default)]
struct RetriedAbove(Arc<AtomicBool>);

/// An extension of a failed response on which a retry layer gave up, with the budget of that layer.
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

    /// Marks an extra attempt of this layer.
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

    /// Whether a response's mark shows that a layer below has recorded this failure on `budget`.
    pub(crate) fn is_recorded(extensions: &Extensions, budget: &Budget) -> bool {
        let mark = extensions.get();
        mark.is_some_and(|Exhausted(recorded)| recorded.is_same(budget))
    }

    /// Marks a failure that this layer does not retry again, for the layers above. The mark of a layer below stays.
    ///
    /// `response` are the extensions of the failed response, or `None` after an error.
    pub(crate) fn give_up(&self, response: Option<&mut Extensions>, budget: &Budget) {
        match (response, &self.above) {
            (Some(extensions), None) => {
                extensions.get_or_insert_with(|| Exhausted(budget.clone()));
            }
            (None, Some(above)) => above.0.store(true, Ordering::Relaxed),
            // The response to an extra attempt of the layer above needs no mark: that layer decides alone whether it
            // sends another one. The error of a first attempt has no place for a mark.
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}
