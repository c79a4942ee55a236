//! The commands about windows, and the effects of their answers.

use tower_dist_ratelimit::{Decision, backend::BackendError};

use super::*;

fn minute(limit: u64) -> Policy {
    Policy::new("p", Quota::per_minute(limit)).fixed_window_from_first_request()
}

/// A request for 3 tokens, or up to 5.
fn asking(limit: u64) -> (Wire, Task) {
    let wire = Wire::new();
    let task = wire.send(&minute(limit));
    (wire, task)
}

async fn told(task: Task) -> Result<Decision, BackendError> {
    let told = timeout(Duration::from_secs(10), task).await;
    Ok(told.expect("an answer").unwrap()?.decisions[0])
}

#[tokio::test]
async fn a_charge_adds_at_most_the_limit_and_a_cost_above_the_limit_is_not_charged() {
    for (limit, command) in [(9, " D5 "), (4, " D4 "), (2, "mg ")] {
        let (mut wire, _told) = asking(limit);
        wire.answer(command, "EN", "", "").await;
    }
}

#[tokio::test]
async fn reserved_tokens_above_the_grant_are_taken_back() {
    let (mut wire, task) = asking(5);
    // The count was 1 before.
    wire.answer(" D5 ", "VA", "6", " t3 c11").await;
    assert_eq!(told(task).await.unwrap().granted, 4);
    wire.answer(" MD D1 C11", "HD", "", "").await;
}

#[tokio::test]
async fn reserved_tokens_are_taken_back_although_the_queue_was_full() {
    let (link, mut jobs) = Link::channel(Health::up(), 1);
    let mut next = async || {
        timeout(Duration::from_secs(10), jobs.recv())
            .await
            .unwrap()
            .unwrap()
    };
    let answer = operation(&link, &minute(5), OperationKind::Acquire)
        .ask()
        .unwrap();
    let charge = next().await;
    let other = || Command::new("mg", b"other").end("");
    let _other = link.send(other(), None).unwrap();
    assert!(link.send(other(), None).is_err());
    // The count was 1 before.
    let meta = Meta {
        value: Some(b"6"[..].into()),
        ttl: Some(3),
        cas: Some(11),
        ..Meta::new(Code::Value)
    };
    charge.answer.send(Ok(meta)).unwrap();
    assert_eq!(answer.await.unwrap().decisions[0].granted, 4);
    next().await;
    let mut sent = bytes::BytesMut::new();
    next().await.command.write(&mut sent, 0);
    let sent = String::from_utf8_lossy(&sent).into_owned();
    assert!(sent.contains(" MD D1 C11"), "{sent}");
}

#[tokio::test]
async fn a_charge_that_loses_every_race_for_a_new_window_fails_with_a_message_about_the_race() {
    let (mut wire, task) = asking(5);
    for _ in 0..5 {
        wire.answer(" D5 ", "NS", "", "").await;
    }
    let failure = told(task).await.unwrap_err();
    let error = failure.to_string();
    let says = "the rate limit's backend did not decide: another process was quicker";
    assert_eq!(error, says);
}

/// A number that outlives its window, and a number above the largest count.
#[tokio::test]
async fn a_foreign_number_counts_as_zero() {
    for (value, flags) in [("2", " t62"), ("4611686018427387905", " t3")] {
        let (mut wire, task) = asking(2);
        wire.answer("mg ", "VA", value, flags).await;
        assert_eq!(told(task).await.unwrap().remaining, 2);
    }
}

#[tokio::test]
async fn a_counter_without_an_expiry_is_replaced_by_one_that_expires() {
    let (mut wire, task) = asking(5);
    wire.answer(" D5 ", "VA", "5", " t-1 c8").await;
    wire.answer("mg ", "VA", "5", " t-1 c9").await;
    wire.answer("md ", "HD", "", "").await;
    wire.answer(" D5 ", "VA", "5", " t61 c10").await;
    assert_eq!(told(task).await.unwrap().granted, 5);
}

#[tokio::test]
async fn a_foreign_value_that_returns_after_each_deletion_fails_the_charge_with_a_message_about_it()
{
    let (mut wire, task) = asking(5);
    for _ in 0..5 {
        wire.answer(" D5 ", "VA", "5", " t-1 c8").await;
        wire.answer("mg ", "VA", "5", " t-1 c9").await;
        wire.answer("md ", "HD", "", "").await;
    }
    let failure = told(task).await.unwrap_err();
    assert!(failure.is_busy());
    let says =
        "the rate limit's backend did not decide: a foreign value is kept where a limit counts";
    assert_eq!(failure.to_string(), says);
}

/// The version limits the refund to this window.
#[tokio::test]
async fn a_rejected_charge_stays_if_the_server_does_not_report_the_version() {
    let (mut wire, task) = asking(5);
    wire.answer(" D5 ", "VA", "103", " t3 c11").await;
    wire.answer(" MD D5 C11", "EX", "", "").await;
    wire.answer("mg ", "VA", "104", " t3").await;
    assert!(!told(task).await.unwrap().allowed);
}

#[tokio::test]
async fn an_unsent_request_is_not_sent_after_its_caller_has_left() {
    let mut wire = Wire::new();
    drop(
        operation(&wire.link, &minute(9), OperationKind::Acquire)
            .ask()
            .unwrap(),
    );
    let stays = wire.send(&minute(4));
    wire.answer(" D4 ", "VA", "4", " t61 c1").await;
    assert!(told(stays).await.unwrap().allowed);
}

#[tokio::test]
async fn an_answer_to_another_command_ends_the_connection() {
    let (mut wire, task) = asking(5);
    let mut asked = vec![0; 4096];
    assert!(wire.server.read(&mut asked).await.unwrap() > 0);
    let answer = b"VA 1 O999 t61 c1\r\n5\r\n";
    wire.server.write_all(answer).await.unwrap();
    assert!(told(task).await.is_err());
    assert!(wire.end.await.unwrap().is_some());
}

#[tokio::test]
async fn an_error_that_may_be_followed_by_other_errors_ends_the_connection() {
    let (mut wire, task) = asking(5);
    wire.answer(" D5 ", "CLIENT_ERROR bad data chunk", "", "")
        .await;
    assert!(told(task).await.is_err());
    assert!(wire.end.await.unwrap().is_some());
}

#[tokio::test]
async fn the_connection_survives_the_error_of_a_server_without_memory() {
    let (mut wire, task) = asking(5);
    wire.answer(" D5 ", "SERVER_ERROR out of memory", "", "")
        .await;
    assert!(told(task).await.is_err());
    let task = wire.send(&minute(5));
    wire.answer(" D5 ", "VA", "5", " t61 c1").await;
    assert!(told(task).await.unwrap().allowed);
}

#[tokio::test]
async fn tokens_that_cannot_be_taken_back_in_sixteen_attempts_stay_charged() {
    let (mut wire, task) = asking(5);
    wire.answer(" D5 ", "VA", "103", " t3 c11").await;
    for _ in 0..16 {
        wire.answer(" MD D5 C11", "EX", "", "").await;
        wire.answer("mg ", "VA", "104", " t3 c11").await;
    }
    assert!(!told(task).await.unwrap().allowed);
}

#[tokio::test]
async fn a_request_that_finds_room_only_after_each_charge_is_rejected_in_the_end() {
    let (mut wire, task) = asking(5);
    for _ in 0..5 {
        wire.answer(" D5 ", "VA", "103", " t3 c11").await;
        wire.answer(" MD D5 C11", "VA", "0", " t3 c12").await;
    }
    assert!(!told(task).await.unwrap().allowed);
}

/// The first pause before a reconnect depends on it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_connection_records_whether_any_command_was_answered() {
    for is_answered in [false, true] {
        let (mut wire, _told) = asking(5);
        if is_answered {
            wire.answer(" D5 ", "VA", "5", " t61 c1").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(wire.server);
        let end = wire.end.await.unwrap().unwrap();
        assert_eq!(end.had_answers, is_answered, "{end:?}");
    }
}

/// The task that completes the operation reads the answer and takes the tokens back.
#[tokio::test]
async fn a_rejection_whose_caller_has_left_is_taken_back() {
    let (mut wire, task) = asking(5);
    let mut command = vec![0; 4096];
    let n = wire.server.read(&mut command).await.unwrap();
    let command = String::from_utf8_lossy(&command[..n]).into_owned();
    assert!(command.contains(" D5 t v c"), "{command:?}");
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let answer = reply(1, "VA", "103", " t3 c11");
    wire.server.write_all(answer.as_bytes()).await.unwrap();
    wire.answer(" MD D5 C11", "VA", "98", "").await;
}
