#![cfg(feature = "http")]

use std::collections::VecDeque;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::Service;

use super::BoxError;

/// One answer of an [`Upstream`].
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(u16, Vec<(&'static str, &'static str)>),
    Error(&'static str),
    /// A connection that is refused.
    Refused,
}

impl Answer {
    pub(crate) const fn status(status: u16) -> Self {
        Self::Status(status, Vec::new())
    }
}

/// A service over HTTP that gives the answers of a list, the last one again and again, and keeps
/// what it was asked.
#[derive(Clone)]
pub(crate) struct Upstream {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<Mutex<Vec<http::request::Parts>>>,
}

impl Upstream {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            seen: Arc::default(),
        }
    }

    /// What it was asked since this was last called.
    pub(crate) fn seen(&self) -> Vec<http::request::Parts> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Service<Request<Full<Bytes>>> for Upstream {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        self.seen.lock().unwrap().push(request.into_parts().0);
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.len() {
            1 => answers.front().cloned(),
            _ => answers.pop_front(),
        };
        ready(match answer.expect("an answer") {
            Answer::Error(text) => Err(text.into()),
            Answer::Refused => {
                Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into())
            }
            Answer::Status(status, fields) => {
                let mut response = Response::builder().status(status);
                for (name, value) in fields {
                    response = response.header(name, value);
                }
                Ok(response.body(Full::default()).unwrap())
            }
        })
    }
}
