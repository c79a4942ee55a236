use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use super::{HttpRequest, HttpResponse};

/// The marks that keep retry layers above each other from multiplying their attempts.
///
/// - A response that was retried in vain carries [`InVain`], so the layer above does not retry it.
/// - Each extra attempt carries [`RepeatedAbove`], so a layer below does not retry it.
/// - An error has no place for a mark. If it comes after an extra attempt that followed another error, the layer below
///   says in [`RepeatedAbove`] that it would have retried it, and the layer above stops. Layers in one task need no
///   such word, since they count each other's retries.
///
/// A first attempt carries nothing, since the insert into its extensions would cost every call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nested {
    /// Of the layer above, whose extra attempt this request is.
    above: Option<RepeatedAbove>,
    /// Of this layer's last extra attempt, if it followed an error.
    own: Option<RepeatedAbove>,
    /// The last outcome from below was an error, which does not say whether a layer below retried it.
    after_error: bool,
}

/// In the extensions of a retry layer's extra attempts; set when a layer below gave up on one.
#[derive(Clone, Debug, Default)]
struct RepeatedAbove(Arc<AtomicBool>);

/// In the extensions of a response that was repeated as often as is right.
#[derive(Clone, Copy, Debug)]
struct InVain;

impl Nested {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        Self {
            above: extensions.get().cloned(),
            own: None,
            after_error: false,
        }
    }

    pub(crate) fn is_retried_above(&self) -> bool {
        self.above.is_some()
    }

    /// Marks an extra attempt of this layer.
    pub(crate) fn mark<Req: HttpRequest>(&mut self, request: &mut Req) {
        self.own = std::mem::take(&mut self.after_error).then(RepeatedAbove::default);
        if let Some(extensions) = request.extensions_mut() {
            extensions.insert(self.own.clone().unwrap_or_default());
        }
    }

    /// Whether a layer below has given up on what this layer sent.
    pub(crate) fn was_given_up<Res: HttpResponse, E>(&mut self, outcome: &Result<Res, E>) -> bool {
        self.after_error = outcome.is_err();
        match outcome {
            Ok(response) => response.extensions().get::<InVain>().is_some(),
            Err(_) => {
                let set = |flag: &RepeatedAbove| flag.0.load(Ordering::Relaxed);
                self.own.as_ref().is_some_and(set)
            }
        }
    }

    /// Marks a failure that this layer does not retry again, for the layers above.
    pub(crate) fn give_up<Res: HttpResponse, E>(&self, outcome: &mut Result<Res, E>) {
        match (outcome, &self.above) {
            (Ok(response), None) => {
                response.extensions_mut().insert(InVain);
            }
            (Err(_), Some(above)) => above.0.store(true, Ordering::Relaxed),
            // The layer above decides on its own attempts.
            (Ok(_), Some(_)) | (Err(_), None) => {}
        }
    }
}
