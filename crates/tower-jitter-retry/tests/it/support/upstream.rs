#![cfg(feature = "http")]

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
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
    /// REFUSED_STREAM of HTTP/2; see [`refused_stream`].
    Unprocessed(RefusedStream),
}

/// Proof that the server did not process the request.
#[derive(Clone, Debug)]
pub(crate) struct RefusedStream(Arc<h2::Error>);

impl fmt::Display for RefusedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for RefusedStream {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// The error of an HTTP/2 client whose stream the server refused. Only a real server produces this error.
pub(crate) async fn refused_stream() -> Answer {
    let (client, server) = tokio::io::duplex(1024);
    tokio::spawn(async move {
        let mut server = h2::server::handshake(server).await.unwrap();
        while let Some(Ok((_, mut respond))) = server.accept().await {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
        }
    });
    let (client, connection) = h2::client::handshake(client).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = Request::get("http://localhost/").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let error = response.await.unwrap_err();
    Answer::Unprocessed(RefusedStream(Arc::new(error)))
}

impl Answer {
    pub(crate) const fn status(status: u16) -> Self {
        Self::Status(status, Vec::new())
    }
}

/// An HTTP service that returns the answers of a list, and then the last one repeatedly. It records its requests.
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

    /// Returns the requests since the last call of this function.
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
            Answer::Unprocessed(error) => Err(error.into()),
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
