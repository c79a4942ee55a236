//! Behaviour at the limit, and after errors.

use std::iter::repeat_n;

use http_body_util::BodyExt;
use tower_attempt::{Attempt, Interrupted, ReplayError};

use crate::script::{Manners, Script, Step, pieces};
use crate::{again, data, last, read, scripted};

fn total(lens: &[usize]) -> usize {
    lens.iter().sum()
}

#[tokio::test]
async fn a_body_within_the_limit_is_replayed_with_its_trailers() {
    let steps = vec![
        Step::Data(10),
        Step::Data(0),
        Step::Data(20),
        Step::Trailers,
    ];
    let manners = Manners {
        knows_size: true,
        knows_end: true,
    };
    let (script, _) = Script::new(steps.clone(), manners);
    let (body, saved) = scripted(script, 1_000);
    let first = body.collect().await.unwrap();
    let body = last(saved, Attempt::retry(2)).unwrap();
    assert_eq!(http_body::Body::size_hint(&body).exact(), Some(30));
    let second = body.collect().await.unwrap();
    assert_eq!(first.trailers(), second.trailers());
    assert!(first.trailers().is_some());
    assert_eq!(first.to_bytes(), second.to_bytes());
    assert_eq!(pieces(&steps).len(), 4);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_sent_whole_but_only_once() {
    let lens = [400, 400, 400];
    let (script, control) = Script::frames(lens);
    let (body, saved) = scripted(script, 1_000);
    assert_eq!(read(body).await.unwrap().len(), total(&lens));
    assert!(again(&saved, Attempt::retry(2)).is_none());
    assert_eq!(control.get(|progress| progress.dropped), 1);
}

#[tokio::test]
async fn nothing_is_read_ahead() {
    let (script, control) = Script::frames([1, 2, 3]);
    let (body, saved) = scripted(script, 1_000);
    let mut copy = again(&saved, Attempt::hedge(2)).unwrap();
    assert_eq!(control.get(|progress| progress.frames), 0);
    data(&mut copy).await;
    assert_eq!(control.get(|progress| progress.frames), 1);
    drop(body);
}

#[tokio::test]
async fn the_oldest_live_attempt_continues_and_others_are_interrupted() {
    let lens = [400, 400, 400, 400];
    let (script, _) = Script::frames(lens);
    let (oldest, saved) = scripted(script, 1_000);
    let mut second = again(&saved, Attempt::hedge(2)).unwrap();
    let third = again(&saved, Attempt::hedge(3)).unwrap();
    data(&mut second).await;
    data(&mut second).await;
    // The reader that continues receives the frame that crosses the limit.
    let error = second.frame().await.unwrap().unwrap_err();
    assert_eq!(error, ReplayError::Interrupted);
    assert!(second.frame().await.is_none(), "once is enough");
    assert!(read(third).await.is_err());
    assert!(again(&saved, Attempt::hedge(4)).is_none());
    assert_eq!(read(oldest).await.unwrap().len(), total(&lens));
}

#[tokio::test]
async fn an_ended_attempt_never_wins_over_a_live_one() {
    let lens = [400, 400, 400, 400];
    let (script, _) = Script::frames(lens);
    let (mut over, saved) = scripted(script, 1_000);
    data(&mut over).await;
    // Not polled yet, as during the wait between two attempts.
    let live = again(&saved, Attempt::retry(2)).unwrap();
    // The ended attempt may read on while all frames are held.
    data(&mut over).await;
    assert!(over.frame().await.unwrap().is_err());
    assert_eq!(read(live).await.unwrap().len(), total(&lens));
}

/// The reader of an early response must not take the body away from the attempt after the next one.
#[tokio::test]
async fn an_ended_attempt_never_wins_over_a_later_one() {
    let lens = [400, 400, 400, 400];
    let (script, _) = Script::frames(lens);
    let (mut over, saved) = scripted(script, 1_000);
    drop(again(&saved, Attempt::retry(2)).unwrap());
    data(&mut over).await;
    data(&mut over).await;
    assert!(over.frame().await.unwrap().is_err());
    let live = last(saved, Attempt::retry(3)).unwrap();
    assert_eq!(read(live).await.unwrap().len(), total(&lens));
}

/// The client of each attempt reads on after the next attempt has come and gone.
#[tokio::test]
async fn ended_attempts_record_one_frame_beyond_the_limit_however_many_they_are() {
    let lens = [400; 8];
    let (script, control) = Script::frames(lens);
    let (first, saved) = scripted(script, 1_000);
    let mut over = first;
    for (number, recorded) in [(2, 2), (4, 3), (6, 3), (8, 3)] {
        drop(again(&saved, Attempt::retry(number)).unwrap());
        for _ in 0..recorded {
            data(&mut over).await;
        }
        assert!(over.frame().await.unwrap().is_err());
        assert_eq!(control.get(|progress| progress.frames), 3, "{number}");
        over = again(&saved, Attempt::retry(number + 1)).unwrap();
    }
    drop(over);
    let live = last(saved, Attempt::retry(10)).unwrap();
    assert_eq!(read(live).await.unwrap().len(), total(&lens));
}

#[tokio::test]
async fn an_ended_attempt_continues_if_no_other_attempt_can_follow() {
    let lens = [400, 400, 400, 400];
    let (script, _) = Script::frames(lens);
    let (over, saved) = scripted(script, 1_000);
    drop(last(saved, Attempt::retry(2)).unwrap());
    assert_eq!(read(over).await.unwrap().len(), total(&lens));
}

#[tokio::test]
async fn a_dropped_attempt_is_not_live() {
    let lens = [400, 400, 400, 400];
    let (script, _) = Script::frames(lens);
    let (first, saved) = scripted(script, 1_000);
    let second = again(&saved, Attempt::hedge(2)).unwrap();
    drop(first);
    assert_eq!(read(second).await.unwrap().len(), total(&lens));
}

#[tokio::test]
async fn with_a_limit_of_zero_an_unread_body_can_be_replayed() {
    let (script, _) = Script::frames([5, 5]);
    let (body, saved) = scripted(script, 0);
    drop(body);
    let mut body = again(&saved, Attempt::retry(2)).unwrap();
    data(&mut body).await;
    assert!(again(&saved, Attempt::retry(3)).is_none());
    assert_eq!(read(body).await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_million_tiny_frames_take_no_more_than_the_limit() {
    let (script, _) = Script::frames(repeat_n(1, 1_000_000));
    let (mut body, saved) = scripted(script, 64 * 1024);
    // Each frame counts 64 bytes.
    for _ in 0..1_024 {
        data(&mut body).await;
    }
    assert!(again(&saved, Attempt::hedge(2)).is_some());
    data(&mut body).await;
    assert!(again(&saved, Attempt::hedge(3)).is_none());
    assert_eq!(read(body).await.unwrap().len(), 1_000_000 - 1_025);
}

#[tokio::test]
async fn a_body_as_long_as_the_limit_is_replayed_with_any_frames() {
    for frames in [vec![16_384], vec![8_192; 2], vec![64; 256]] {
        let (script, _) = Script::frames(frames);
        let (body, saved) = scripted(script, 16_384);
        assert_eq!(read(body).await.unwrap().len(), 16_384);
        let second = last(saved, Attempt::retry(2)).unwrap();
        assert_eq!(read(second).await.unwrap().len(), 16_384);
    }
}

/// The speed of an attempt must not decide its outcome.
#[tokio::test]
async fn readers_in_step_do_not_escape_the_limit() {
    let (script, _) = Script::frames(repeat_n(400, 100));
    let (mut first, saved) = scripted(script, 1_000);
    let mut second = last(saved, Attempt::hedge(2)).unwrap();
    for _ in 0..2 {
        assert_eq!(data(&mut first).await, data(&mut second).await);
    }
    data(&mut first).await;
    assert!(second.frame().await.unwrap().is_err());
    assert_eq!(read(first).await.unwrap().len(), 97 * 400);
}

/// If all attempts fail, the caller receives the failure of the oldest, which then names the cause.
#[tokio::test]
async fn the_oldest_attempt_receives_an_error_of_the_body_that_any_attempt_meets() {
    for first_meets_it in [true, false] {
        let manners = Manners {
            knows_size: false,
            knows_end: true,
        };
        let (script, control) = Script::new(vec![Step::Data(1), Step::Error], manners);
        let (mut first, saved) = scripted(script, 1_000);
        let mut second = again(&saved, Attempt::hedge(2)).unwrap();
        let (met, other) = match first_meets_it {
            true => (&mut first, &mut second),
            false => (&mut second, &mut first),
        };
        data(met).await;
        let met = met.frame().await.unwrap().unwrap_err();
        assert!(again(&saved, Attempt::retry(3)).is_none());
        assert!(!http_body::Body::is_end_stream(other));
        let other = other.frame().await.unwrap().unwrap_err();
        let (first, second) = match first_meets_it {
            true => (met, other),
            false => (other, met),
        };
        assert!(matches!(first, ReplayError::Source(_)), "{first:?}");
        assert_eq!(second, ReplayError::Interrupted);
        assert_eq!(control.get(|progress| progress.dropped), 1);
    }
}

/// An inner layer records the replay of the outer layer.
#[tokio::test]
async fn recordings_nest() {
    let lens = [100, 200, 300];
    let (script, control) = Script::frames(lens);
    let (outer, outer_saved) = scripted(script, 10_000);
    let (mut primary, inner_saved) = crate::first(outer, 10_000);
    data(&mut primary).await;
    let hedge = last(inner_saved, Attempt::hedge(2)).unwrap();
    assert_eq!(read(hedge).await.unwrap().len(), total(&lens));
    drop(primary);
    let retry = last(outer_saved, Attempt::retry(2)).unwrap();
    let (retry, _) = crate::first(retry, 10_000);
    assert_eq!(read(retry).await.unwrap().len(), total(&lens));
    assert_eq!(control.get(|progress| progress.dropped), 1);
}

#[test]
fn an_interruption_is_found_among_the_sources() {
    let error = ReplayError::<std::io::Error>::Interrupted;
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.is::<Interrupted>());
}
