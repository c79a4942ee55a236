use http::header::{EXPECT, UPGRADE};
use reqwest::{Body, Request};

use super::ByBody;
use crate::replay::Recording;
use crate::{Attempt, ReplayableBody, Replays};

/// A `reqwest::Request` that can be repeated.
#[derive(Debug)]
pub struct SavedReqwest {
    /// With the body, if it is in memory.
    request: Request,
    recording: Option<Recording<Body>>,
}

impl Replays<Request> for ByBody {
    type Saved = SavedReqwest;

    fn first(&self, request: &mut Request) -> Option<SavedReqwest> {
        if let Some(request) = request.try_clone() {
            return Some(SavedReqwest {
                request,
                recording: None,
            });
        }
        let body = request.body_mut().take()?;
        // Without its body a request can always be cloned.
        let mut copy = request.try_clone()?;
        let content = match copy.headers().contains_key(EXPECT) {
            false => body.into_memory(),
            true => body.into_replay().into_memory(),
        };
        let recording = match content {
            Ok(content) => {
                *request.body_mut() = Some(Body::from_memory(content.clone()));
                *copy.body_mut() = Some(Body::from_memory(content));
                None
            }
            Err(body) => {
                let (body, recording) = body.record(self.limit);
                *request.body_mut() = Some(Body::from_replay(body));
                Some(recording)
            }
        };
        Some(SavedReqwest {
            request: copy,
            recording,
        })
    }

    fn again(&self, saved: &SavedReqwest, attempt: Attempt) -> Option<Request> {
        let copy = saved.request.try_clone()?;
        fill(copy, saved.recording.as_ref(), attempt)
    }

    fn last(&self, saved: SavedReqwest, attempt: Attempt) -> Option<Request> {
        let SavedReqwest { request, recording } = saved;
        fill(request, recording.as_ref(), attempt)
    }
}

fn fill(
    mut request: Request,
    recording: Option<&Recording<Body>>,
    attempt: Attempt,
) -> Option<Request> {
    if request.headers().contains_key(UPGRADE) {
        return None;
    }
    if let Some(recording) = recording {
        *request.body_mut() = Some(recording.read_again(attempt)?);
    }
    Some(request)
}
