//! The service below sees its usual body type.

use std::error::Error;
use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::header::{EXPECT, UPGRADE};
use http::{Request, Version};
use http_body::Body;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Full};
use tower_attempt::{Attempt, Interrupted, ReplayBody, ReplayableBody, ReplayableRequest};

use crate::script::{Broken, Manners, Script, Step};
use crate::{again, data, first, last, read};

type BoxError = Box<dyn Error + Send + Sync>;

fn script(knows_size: bool) -> Script {
    let manners = Manners {
        knows_size,
        knows_end: false,
    };
    Script::new(vec![Step::Data(400); 4], manners).0
}

/// Sends the body twice concurrently and once more, then with one attempt too many.
async fn replays<B>(body: impl Fn(Script) -> B) -> B::Error
where
    B: ReplayableBody + Body<Data = Bytes> + Unpin,
    B::Error: Debug,
{
    for knows_size in [false, true] {
        let size = knows_size.then_some(1_600);
        let (mut one, saved) = first(body(script(knows_size)), 10_000);
        assert_eq!(one.size_hint().exact(), size);
        data(&mut one).await;
        let two = again(&saved, Attempt::hedge(2)).unwrap();
        assert_eq!(two.size_hint().exact(), size);
        assert_eq!(one.size_hint().exact(), size.map(|size| size - 400));
        let (one, two) = (read(one).await.unwrap(), read(two).await.unwrap());
        assert_eq!(one, two[400..]);
        let three = last(saved, Attempt::retry(3)).unwrap();
        assert_eq!(read(three).await.unwrap(), two);
    }
    let (_first, saved) = first(body(script(false)), 1_000);
    let second = last(saved, Attempt::hedge(2)).unwrap();
    read(second).await.unwrap_err()
}

/// Whether an interruption is the error, or among its sources.
fn is_interrupted(error: &(dyn Error + 'static)) -> bool {
    error.is::<Interrupted>() || error.source().is_some_and(is_interrupted)
}

#[tokio::test]
async fn boxes_of_known_errors_report_an_interruption() {
    let error = replays(|script| UnsyncBoxBody::<_, BoxError>::new(script.map_err(broken))).await;
    assert!(is_interrupted(&*error));
    let error = replays(|script| BoxBody::<_, BoxError>::new(script.map_err(broken))).await;
    assert!(is_interrupted(&*error));
    let to_io = |error| io::Error::other(broken(error));
    let error = replays(|script| script.map_err(to_io).boxed()).await;
    assert!(error.get_ref().unwrap().is::<Interrupted>());
}

fn broken(_: Broken) -> BoxError {
    "broken".into()
}

#[cfg(feature = "axum-08")]
#[tokio::test]
async fn axum_bodies_are_recorded() {
    let wrap = |script: Script| axum_core::body::Body::new(script.map_err(broken));
    assert!(is_interrupted(&replays(wrap).await));
}

#[cfg(feature = "tonic-014")]
#[tokio::test]
async fn tonic_bodies_are_recorded() {
    let wrap = |script: Script| tonic::body::Body::new(script.map_err(broken));
    let status = replays(wrap).await;
    assert_eq!(status.code(), tonic::Code::Cancelled);
    assert!(is_interrupted(&status));
}

#[cfg(feature = "reqwest-013")]
#[tokio::test]
async fn reqwest_bodies_are_recorded() {
    let wrap = |script: Script| reqwest::Body::wrap(script.map_err(broken));
    assert!(is_interrupted(&replays(wrap).await));
}

#[cfg(feature = "reqwest-013")]
#[tokio::test]
async fn reqwest_requests_are_recorded() {
    let url = reqwest::Url::parse("http://example.com/").unwrap();
    let mut request = reqwest::Request::new(http::Method::PUT, url);
    request.headers_mut().insert("a", "1".parse().unwrap());
    *request.timeout_mut() = Some(std::time::Duration::from_secs(7));
    *request.version_mut() = Version::HTTP_2;
    *request.body_mut() = Some(reqwest::Body::wrap(script(true).map_err(broken)));
    let saved = request.save(10_000).unwrap();
    let copy = reqwest::Request::again(&saved, Attempt::hedge(2)).unwrap();
    let last = reqwest::Request::again(&saved, Attempt::retry(3)).unwrap();
    for mut request in [request, copy, last] {
        assert_eq!(request.headers()["a"], "1");
        assert_eq!(request.timeout().unwrap().as_secs(), 7);
        assert_eq!(request.version(), Version::HTTP_2);
        let body = request.body_mut().take().unwrap();
        assert_eq!(body.size_hint().exact(), Some(1_600));
        assert_eq!(read(body).await.unwrap().len(), 1_600);
    }
}

/// A foreign error type cannot express an interruption, and an end would make the body look complete.
#[tokio::test]
async fn a_box_of_a_foreign_error_is_pending_when_it_is_interrupted() {
    let (mut over, saved) = first(script(false).boxed_unsync(), 1_000);
    let live = again(&saved, Attempt::retry(2)).unwrap();
    data(&mut over).await;
    data(&mut over).await;
    for _ in 0..3 {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut over).poll_frame(&mut cx).is_pending());
        assert!(!over.is_end_stream());
    }
    assert_eq!(read(live).await.unwrap().len(), 1_600);
}

/// A hedge that was cut off would wait for the remaining body forever. Once the first attempt failed, the call would
/// wait, too.
#[tokio::test]
async fn a_box_of_a_foreign_error_is_hedged_only_when_no_attempt_can_interrupt_it() {
    let (mut one, saved) = first(script(false).boxed(), 10_000);
    assert!(again(&saved, Attempt::hedge(2)).is_none());
    data(&mut one).await;
    assert!(again(&saved, Attempt::hedge(2)).is_none());
    read(one).await.unwrap();
    // The whole body is recorded.
    let two = again(&saved, Attempt::hedge(2)).unwrap();
    let three = last(saved, Attempt::hedge(3)).unwrap();
    assert_eq!(read(two).await.unwrap().len(), 1_600);
    assert_eq!(read(three).await.unwrap().len(), 1_600);
    // The first attempt was dropped.
    let (one, saved) = first(script(false).boxed(), 1_000);
    drop(one);
    let two = again(&saved, Attempt::hedge(2)).unwrap();
    assert!(again(&saved, Attempt::hedge(3)).is_none());
    assert_eq!(read(two).await.unwrap().len(), 1_600);
}

#[tokio::test]
async fn a_copy_of_a_stream_has_all_parts_of_the_request() {
    let request = Request::put("http://example.com/?a=b").version(Version::HTTP_2);
    let request = request.header(EXPECT, "100-continue").extension("mine");
    let mut request = request.body(ReplayBody::new(script(false))).unwrap();
    let saved = request.save(10_000).unwrap();
    let copy: Request<ReplayBody<Script>> = Request::again(&saved, Attempt::retry(2)).unwrap();
    assert_eq!(copy.uri(), request.uri());
    assert_eq!(copy.version(), Version::HTTP_2);
    assert_eq!(copy.headers()[EXPECT], "100-continue");
    assert_eq!(copy.extensions().get(), Some(&"mine"));
    assert_eq!(copy.extensions().get(), Some(&Attempt::retry(2)));
}

#[tokio::test]
async fn a_stream_with_an_upgrade_is_sent_once() {
    let mut request = Request::new(ReplayBody::new(script(false)));
    request
        .headers_mut()
        .insert(UPGRADE, "websocket".parse().unwrap());
    let saved = request.save(10_000).unwrap();
    let copy: Option<Request<ReplayBody<Script>>> = Request::again(&saved, Attempt::retry(2));
    assert!(copy.is_none());
    assert_eq!(read(request.into_body()).await.unwrap().len(), 1_600);
}

#[tokio::test]
async fn an_unrecorded_replay_body_is_its_source() {
    let body = ReplayBody::new(script(true));
    assert_eq!(body.size_hint().exact(), Some(1_600));
    assert_eq!(read(body).await.unwrap().len(), 1_600);
    assert!(ReplayBody::<Script>::default().is_end_stream());
    let empty = ReplayBody::new(Full::<Bytes>::default());
    assert_eq!(empty.into_memory(true).unwrap(), "");
}
