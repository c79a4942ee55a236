//! What is asked of the server about windows, and what comes of its answers.

use tower_dist_ratelimit::Decision;

use super::*;

fn minute(limit: u64) -> Policy {
    Policy::new("p", Quota::per_minute(limit)).fixed_window_from_first_request()
}

/// Asks for three, or five if they are there.
fn asking(limit: u64) -> (Wire, Receiver) {
    let (job, receiver) = counting(&minute(limit), Verb::Acquire);
    let wire = Wire::new();
    wire.send(job);
    (wire, receiver)
}

async fn told(receiver: Receiver) -> Result<Decision, Failure> {
    let told = tokio::time::timeout(Duration::from_secs(10), receiver).await;
    Ok(told.expect("an answer").unwrap()?.decisions[0])
}

#[tokio::test]
async fn no_more_is_added_than_the_limit_and_nothing_of_what_can_never_pass() {
    for (limit, command) in [(9, " D5 "), (4, " D4 "), (2, "mg ")] {
        let (mut wire, _told) = asking(limit);
        wire.answer(command, "EN", "", "").await;
    }
}

#[tokio::test]
async fn what_was_wanted_and_not_there_is_taken_back() {
    let (mut wire, receiver) = asking(5);
    // There was one before.
    wire.answer(" D5 ", "VA", "6", " t3 c11").await;
    assert_eq!(told(receiver).await.unwrap().granted, 4);
    wire.answer(" MD D1 C11", "HD", "", "").await;
}

#[tokio::test]
async fn who_is_beaten_to_a_new_window_again_and_again_is_told_so() {
    let (mut wire, receiver) = asking(5);
    for _ in 0..5 {
        wire.answer(" D5 ", "NS", "", "").await;
    }
    let failure = told(receiver).await.unwrap_err();
    let error = tower_dist_ratelimit::backend::BackendError::from(failure).to_string();
    assert!(error.contains("quicker"), "{error}");
}

/// One that is kept for longer than a window, and one that is larger than anything counted.
#[tokio::test]
async fn a_number_that_is_no_count_of_ours_counts_for_nothing() {
    for (value, flags) in [("2", " t62"), ("4611686018427387905", " t3")] {
        let (mut wire, receiver) = asking(2);
        wire.answer("mg ", "VA", value, flags).await;
        assert_eq!(told(receiver).await.unwrap().remaining, 2);
    }
}

#[tokio::test]
async fn a_counter_that_never_ends_is_replaced_by_one_that_does() {
    let (mut wire, receiver) = asking(5);
    wire.answer(" D5 ", "VA", "5", " t-1 c8").await;
    wire.answer("mg ", "VA", "5", " t-1 c9").await;
    wire.answer("md ", "HD", "", "").await;
    wire.answer(" D5 ", "VA", "5", " t61 c10").await;
    assert_eq!(told(receiver).await.unwrap().granted, 5);
}

/// Without that nothing can be taken back from this window and no other.
#[tokio::test]
async fn who_is_not_told_what_is_there_now_is_refused() {
    let (mut wire, receiver) = asking(5);
    wire.answer(" D5 ", "VA", "103", " t3 c11").await;
    wire.answer(" MD D5 C11", "EX", "", "").await;
    wire.answer("mg ", "VA", "104", " t3").await;
    assert!(!told(receiver).await.unwrap().allowed);
}

#[tokio::test]
async fn for_who_has_gone_nothing_is_sent() {
    let (gone, receiver) = counting(&minute(9), Verb::Acquire);
    drop(receiver);
    let (stays, receiver) = counting(&minute(4), Verb::Acquire);
    let mut wire = Wire::new();
    wire.send(gone);
    wire.send(stays);
    wire.answer(" D4 ", "VA", "4", " t61 c1").await;
    assert!(told(receiver).await.unwrap().allowed);
}

#[tokio::test]
async fn an_answer_to_something_else_ends_the_connection() {
    let (mut wire, receiver) = asking(5);
    let mut asked = vec![0; 4096];
    assert!(wire.server.read(&mut asked).await.unwrap() > 0);
    let answer = b"VA 1 O999 t61 c1\r\n5\r\n";
    wire.server.write_all(answer).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(10), receiver).await;
    assert!(told.expect("an end").is_err(), "nobody is told that");
}

#[tokio::test]
async fn after_an_error_that_may_not_be_the_last_the_connection_ends() {
    let (mut wire, receiver) = asking(5);
    wire.answer(" D5 ", "CLIENT_ERROR bad data chunk", "", "")
        .await;
    assert!(told(receiver).await.is_err());
    let ended = tokio::time::timeout(Duration::from_secs(10), wire.inbox.closed());
    assert!(ended.await.is_ok());
}

#[tokio::test]
async fn after_a_server_without_memory_has_said_so_it_is_asked_again() {
    let (mut wire, receiver) = asking(5);
    wire.answer(" D5 ", "SERVER_ERROR out of memory", "", "")
        .await;
    assert!(told(receiver).await.is_err());
    let (job, receiver) = counting(&minute(5), Verb::Acquire);
    wire.send(job);
    wire.answer(" D5 ", "VA", "5", " t61 c1").await;
    assert!(told(receiver).await.unwrap().allowed);
}

#[tokio::test]
async fn what_others_keep_changing_is_given_up_and_stays_charged() {
    let (mut wire, receiver) = asking(5);
    wire.answer(" D5 ", "VA", "103", " t3 c11").await;
    for _ in 0..16 {
        wire.answer(" MD D5 C11", "EX", "", "").await;
        wire.answer("mg ", "VA", "104", " t3 c11").await;
    }
    wire.answer(" MD D5 C11", "EX", "", "").await;
    assert!(!told(receiver).await.unwrap().allowed);
}

#[tokio::test]
async fn who_finds_room_only_after_it_was_too_much_is_refused_in_the_end() {
    let (mut wire, receiver) = asking(5);
    for _ in 0..5 {
        wire.answer(" D5 ", "VA", "103", " t3 c11").await;
        wire.answer(" MD D5 C11", "VA", "0", " t3 c12").await;
    }
    assert!(!told(receiver).await.unwrap().allowed);
}

/// Whoever connects again pauses only if nothing came of the last time.
#[tokio::test(start_paused = true)]
async fn a_connection_was_of_use_if_anything_was_answered() {
    for of_use in [false, true] {
        let (mut wire, _told) = asking(5);
        if of_use {
            wire.answer(" D5 ", "VA", "5", " t61 c1").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(wire.server);
        let end = wire.end.await.unwrap().unwrap();
        assert_eq!(end.had_answers, of_use, "{end:?}");
    }
}
