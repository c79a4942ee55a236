//! A body that streams, read by several attempts.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "what can't be set up fails the test")]

mod bodies;
mod deadlocks;
mod drops;
mod interleavings;
mod limits;
mod model;
mod script;
mod threads;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Collected};
use tower_attempt::{Attempt, ByBody, ReplayBody, ReplayableBody, Replays};

use self::script::Script;

/// What further attempts on a body are made from.
pub(crate) struct Saved<B: ReplayableBody>(<ByBody as Replays<Request<B>>>::Saved);

/// The first attempt's body, and what others are made from.
pub(crate) fn first<B: ReplayableBody>(body: B, limit: usize) -> (B, Saved<B>) {
    let mut request = Request::new(body);
    let saved = ByBody::with_limit(limit).first(&mut request).unwrap();
    (request.into_body(), Saved(saved))
}

pub(crate) fn again<B: ReplayableBody>(saved: &Saved<B>, attempt: Attempt) -> Option<B> {
    let request: Request<B> = ByBody::default().again(&saved.0, attempt)?;
    Some(request.into_body())
}

pub(crate) fn last<B: ReplayableBody>(saved: Saved<B>, attempt: Attempt) -> Option<B> {
    let request: Request<B> = ByBody::default().last(saved.0, attempt)?;
    Some(request.into_body())
}

/// A script's first attempt.
pub(crate) fn scripted(
    script: Script,
    limit: usize,
) -> (ReplayBody<Script>, Saved<ReplayBody<Script>>) {
    first(ReplayBody::new(script), limit)
}

pub(crate) async fn read<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, B::Error> {
    body.collect().await.map(Collected::to_bytes)
}

/// The next frame's data, which must be there.
pub(crate) async fn data<B>(body: &mut B) -> Bytes
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let frame: Frame<Bytes> = body.frame().await.unwrap().unwrap();
    frame.into_data().unwrap()
}
