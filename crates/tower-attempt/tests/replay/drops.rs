//! The source is dropped once, and as early as possible.

use tower_attempt::Attempt;

use crate::script::{Control, Script};
use crate::{again, data, last, scripted};

fn dropped(control: &Control) -> bool {
    control.get(|progress| progress.dropped) == 1
}

#[tokio::test]
async fn the_last_owner_drops_the_source() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let (script, control) = Script::frames([1, 2, 3]);
        let (mut first, saved) = scripted(script, 1_000);
        data(&mut first).await;
        let second = again(&saved, Attempt::hedge(2)).unwrap();
        let (mut first, mut second, mut saved) = (Some(first), Some(second), Some(saved));
        for which in order {
            assert!(!dropped(&control));
            match which {
                0 => first = None,
                1 => second = None,
                _ => saved = None,
            }
        }
        assert!(dropped(&control), "{order:?}");
        assert!(first.is_none() && second.is_none() && saved.is_none());
    }
}

#[tokio::test]
async fn the_last_reader_drops_a_source_that_cannot_be_replayed() {
    let (script, control) = Script::frames([400, 400, 400]);
    let (mut body, saved) = scripted(script, 500);
    data(&mut body).await;
    data(&mut body).await;
    assert!(!dropped(&control));
    drop(body);
    assert!(dropped(&control), "although the saved request is there");
    assert!(again(&saved, Attempt::retry(2)).is_none());
}

#[tokio::test]
async fn a_source_that_has_ended_is_dropped_while_readers_are_there() {
    let (script, control) = Script::frames([1]);
    let (mut body, saved) = scripted(script, 500);
    data(&mut body).await;
    assert!(http_body_util::BodyExt::frame(&mut body).await.is_none());
    assert!(dropped(&control));
    assert_eq!(
        data(&mut last(saved, Attempt::retry(2)).unwrap())
            .await
            .len(),
        1
    );
}

/// Frames are freed when every reader has read them and no further reader can join.
#[tokio::test]
async fn a_record_is_freed_as_it_is_read() {
    let (script, _) = Script::frames([1, 2, 3]);
    let (mut body, saved) = scripted(script, 1_000);
    let first = data(&mut body).await;
    assert!(!first.is_unique(), "recorded");
    let mut copy = last(saved, Attempt::hedge(2)).unwrap();
    assert_eq!(data(&mut copy).await, first);
    let second = data(&mut copy).await;
    assert!(!second.is_unique(), "the first has not read it");
    drop(body);
    assert!(second.is_unique());
    assert!(data(&mut copy).await.is_unique(), "not recorded");
}

#[tokio::test]
async fn without_the_saved_request_nothing_is_recorded() {
    let (script, _) = Script::frames([1, 2]);
    let (mut body, saved) = scripted(script, 1_000);
    let recorded = data(&mut body).await;
    drop(saved);
    assert!(recorded.is_unique());
    assert!(data(&mut body).await.is_unique());
}
