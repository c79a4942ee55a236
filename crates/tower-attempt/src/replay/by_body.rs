use bytes::Bytes;
use http::{Extensions, Request, request};

use super::{ReplayableBody, Replays};
use crate::{Attempt, AttemptKind};

/// Repeats HTTP requests whose body is empty or in memory; any other is sent once.
///
/// The head is cloned, the body's bytes are shared. Extra attempts carry their [`Attempt`] in the
/// request's extensions. `reqwest::Request` keeps its extensions private, so there they don't.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByBody;

impl<B: ReplayableBody> Replays<Request<B>> for ByBody {
    type Saved = (request::Parts, Bytes);

    fn first(&self, request: Request<B>) -> (Request<B>, Option<Self::Saved>) {
        let (head, body) = request.into_parts();
        match body.into_memory() {
            Ok(bytes) => {
                let saved = (head.clone(), bytes.clone());
                let request = Request::from_parts(head, B::from_memory(bytes));
                (request, Some(saved))
            }
            Err(body) => (Request::from_parts(head, body), None),
        }
    }

    fn again(&self, (head, bytes): &Self::Saved, attempt: Attempt) -> Option<Request<B>> {
        self.last((head.clone(), bytes.clone()), attempt)
    }

    fn last(&self, (mut head, bytes): Self::Saved, attempt: Attempt) -> Option<Request<B>> {
        mark(&mut head.extensions, attempt);
        Some(Request::from_parts(head, B::from_memory(bytes)))
    }
}

/// A repeat of a hedge is still a hedge: otherwise a hedge layer below would hedge it again.
fn mark(extensions: &mut Extensions, attempt: Attempt) {
    let hedged = extensions
        .get::<Attempt>()
        .is_some_and(|outer| outer.kind() == AttemptKind::Hedge);
    let attempt = match hedged {
        true => Attempt::hedge(attempt.number()),
        false => attempt,
    };
    extensions.insert(attempt);
}

#[cfg(feature = "reqwest-013")]
impl Replays<reqwest::Request> for ByBody {
    type Saved = reqwest::Request;

    fn first(&self, request: reqwest::Request) -> (reqwest::Request, Option<Self::Saved>) {
        let saved = request.try_clone();
        (request, saved)
    }

    fn again(&self, saved: &Self::Saved, _: Attempt) -> Option<reqwest::Request> {
        saved.try_clone()
    }

    fn last(&self, saved: Self::Saved, _: Attempt) -> Option<reqwest::Request> {
        Some(saved)
    }
}
