use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use super::{HttpRequest, HttpResponse};

/// What keeps a retry layer above another from multiplying its attempts with those of the other.
///
/// A response that was repeated in vain carries [`InVain`], so the layer above leaves it. An error has
/// no such place. So the extra attempt that follows an error carries [`RepeatedAbove`]: a layer below
/// does not repeat it, and says by it that it would have. A first attempt carries nothing, since it
/// would cost every call an insert into its extensions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nested {
    /// Of the layer above, whose extra attempt this request is.
    above: Option<RepeatedAbove>,
    /// Of this layer's last extra attempt.
    own: Option<RepeatedAbove>,
    /// What came last from below was an error, which says nothing of what was done about it there.
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

    /// Marks an extra attempt of this layer, if the one before it ended in an error.
    pub(crate) fn mark<Req: HttpRequest>(&mut self, request: &mut Req) {
        self.own = None;
        if std::mem::take(&mut self.after_error)
            && let Some(extensions) = request.extensions_mut()
        {
            extensions.insert(self.own.get_or_insert_default().clone());
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

    /// Tells the layers above.
    pub(crate) fn give_up<Res: HttpResponse, E>(&self, outcome: &mut Result<Res, E>) {
        match (outcome, &self.above) {
            (Ok(response), _) => {
                response.extensions_mut().insert(InVain);
            }
            (Err(_), Some(above)) => above.0.store(true, Ordering::Relaxed),
            (Err(_), None) => {}
        }
    }
}
