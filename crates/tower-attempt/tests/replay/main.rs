//! A body that streams and has several readers.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod bodies;
mod deadlocks;
mod drops;
mod interleavings;
mod limits;
mod model;
mod run;
mod saved;
mod script;
mod threads;

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Collected};

use self::saved::{Saved, again, first, last, scripted};

pub(crate) async fn read<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, B::Error> {
    body.collect().await.map(Collected::to_bytes)
}

/// Returns the data of the next frame, which must exist.
pub(crate) async fn data<B>(body: &mut B) -> Bytes
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let frame: Frame<Bytes> = body.frame().await.unwrap().unwrap();
    frame.into_data().unwrap()
}
