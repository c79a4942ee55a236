use http::header::{EXPECT, UPGRADE};
use reqwest::{Body, Request};

use super::ReplayableRequest;
use crate::replay::Recording;
use crate::{Attempt, ReplayableBody};

/// A `reqwest::Request` that can be repeated.
#[derive(Debug)]
pub struct SavedReqwest {
    /// With the body, if it is in memory.
    request: Request,
    recording: Option<Recording<Body>>,
}

impl ReplayableRequest for Request {
    type Saved = SavedReqwest;

    fn save(&mut self, limit: usize) -> Option<SavedReqwest> {
        if let Some(request) = self.try_clone() {
            return Some(SavedReqwest {
                request,
                recording: None,
            });
        }
        let body = self.body_mut().take()?;
        // Without its body a request can always be cloned.
        let mut copy = self.try_clone()?;
        let content = match copy.headers().contains_key(EXPECT) {
            false => body.into_memory(),
            true => body.into_replay().into_memory(),
        };
        let recording = match content {
            Ok(content) => {
                *self.body_mut() = Some(Body::from_memory(content.clone()));
                *copy.body_mut() = Some(Body::from_memory(content));
                None
            }
            Err(body) => {
                let (body, recording) = body.record(limit);
                *self.body_mut() = Some(Body::from_replay(body));
                Some(recording)
            }
        };
        Some(SavedReqwest {
            request: copy,
            recording,
        })
    }

    fn again(saved: &SavedReqwest, attempt: Attempt) -> Option<Self> {
        let copy = saved.request.try_clone()?;
        fill(copy, saved.recording.as_ref(), attempt)
    }

    fn last(saved: SavedReqwest, attempt: Attempt) -> Option<Self> {
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
