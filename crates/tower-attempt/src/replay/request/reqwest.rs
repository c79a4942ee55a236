use http::header::{EXPECT, UPGRADE};
use reqwest::{Body, Request};

use super::ReplayableRequest;
use super::saved::Content;
use crate::Attempt;

/// A copy of a `reqwest::Request` for further attempts.
#[derive(Debug)]
pub struct SavedReqwest {
    /// Includes the body, if the body can be cloned.
    request: Request,
    content: Option<Content<Body>>,
}

impl ReplayableRequest for Request {
    type Saved = SavedReqwest;

    fn save(&mut self, limit: usize) -> Option<SavedReqwest> {
        if let Some(request) = self.try_clone() {
            let content = None;
            return Some(SavedReqwest { request, content });
        }
        let is_expected = self.headers().contains_key(EXPECT);
        let mut body = self.body_mut().take()?;
        let content = Some(Content::of(&mut body, is_expected, limit));
        // A request without a body can always be cloned.
        let request = self.try_clone()?;
        *self.body_mut() = Some(body);
        Some(SavedReqwest { request, content })
    }

    fn again(saved: &SavedReqwest, attempt: Attempt) -> Option<Self> {
        let mut request = saved.request.try_clone()?;
        if request.headers().contains_key(UPGRADE) {
            return None;
        }
        if let Some(content) = &saved.content {
            *request.body_mut() = Some(content.body(attempt)?);
        }
        Some(request)
    }
    fn attempt_ended(saved: &SavedReqwest, attempt: Attempt, is_over: bool) -> bool {
        let content = saved.content.as_ref();
        content.is_some_and(|content| content.attempt_ended(attempt, is_over))
    }
}
