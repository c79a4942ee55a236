//! The conformance kit: `Memory` passes, and each check finds the backend that breaks its promise.

mod faulty;

use std::time::Duration;

use tower_dist_ratelimit::{
    Algorithm,
    backend::{BoxFuture, Memory},
    conformance::{Clock, Conformance, Sleeping},
};

use self::faulty::{Fault, Faulty};

/// Tokio's paused clock, which only moves when a test advances it.
struct Paused;

impl Clock for Paused {
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::advance(time))
    }

    fn grain(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_all_promises_to_the_nanosecond() {
    Conformance::new(Memory::default, Paused)
        .run()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_all_promises_by_a_clock_that_cannot_be_paused() {
    let clock = Sleeping::new(Duration::from_millis(2));
    Conformance::new(Memory::default, clock)
        .seed(7)
        .run()
        .await
        .unwrap();
}

/// The check of concurrent threads. It waits for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_grants_racing_threads_exactly_the_free_tokens() {
    let clock = Sleeping::new(Duration::from_millis(2));
    Conformance::new(Memory::default, clock)
        .only("racing")
        .run()
        .await
        .unwrap();
}

#[test]
#[should_panic(expected = r#"no check is called "race""#)]
fn an_unknown_check_panics() {
    let _ = Conformance::new(Memory::default, Paused).only("race");
}

fn kit(fault: Fault) -> Conformance {
    Conformance::new(move || Faulty::new(fault), Paused)
}

#[tokio::test(start_paused = true)]
async fn each_check_finds_the_backend_that_breaks_its_promise() {
    for (fault, check, field) in [
        (Fault::RemainingIsOneTooMany, "decisions", "remaining"),
        (Fault::NothingEverRemains, "refunds", "remaining"),
        (Fault::NothingEverRemains, "keys", "remaining"),
        (Fault::RefusesTheLast, "decisions", "allowed"),
        (Fault::IgnoresWants, "decisions", "granted"),
        (Fault::RetryIsEarly, "retry", "allowed"),
        (Fault::RetryIsLate, "retry", "allowed"),
        (Fault::ResetIsEarly, "expiry", "remaining"),
        (Fault::RejectionsCharge, "nothing written", "reset_after"),
        (Fault::ForgetsRefunds, "refunds", "remaining"),
        (Fault::RefundsMoreThanTheCost, "refunds", "remaining"),
        (Fault::ForgetsResets, "reset", "remaining"),
        (Fault::CutsKeysAtNul, "keys", "remaining"),
        (Fault::CutsKeysAt1024, "keys", "remaining"),
        (Fault::ReadsKeysAsText, "keys", "remaining"),
        (Fault::TakesPartsForKeys, "keys", "remaining"),
        (Fault::LooksThenTakes, "racing", "granted"),
        (Fault::ChargesOneByOne, "all or nothing", "granted"),
        (Fault::IgnoresQuotas, "dynamic quotas", "retry_after"),
        (Fault::GivesNewIds, "building", "the ids of an equal set"),
        (Fault::SaysThatCorrectionsFail, "refunds", "the answer"),
        (Fault::ResetsNoUnusedKeys, "reset", "error"),
        (Fault::DecidesTwice, "decisions", "the number of decisions"),
    ] {
        let alone = kit(fault).only(check).run().await;
        let violation = alone.expect_err(&format!("{check} does not find {fault:?}"));
        assert_eq!(violation.check, check, "{fault:?}");
        assert_eq!(violation.field, field, "{fault:?}");
        let all = kit(fault).run().await;
        assert!(all.is_err(), "{fault:?} passes");
    }
}

/// The text of the violation names the promise.
#[tokio::test(start_paused = true)]
async fn each_promise_of_a_check_finds_its_own_fault() {
    for (fault, check, promise, field) in [
        (Fault::SaysAnotherLimit, "decisions", "up to", "limit"),
        (Fault::LetsNobodyWait, "decisions", "up to", "delay"),
        (Fault::ForgetsRefunds, "decisions", "up to", "remaining"),
        (
            Fault::TellsThoseWhoPassToWait,
            "decisions",
            "retry_after",
            "retry_after",
        ),
        (
            Fault::ResetOfRejectionsIsLate,
            "decisions",
            "reset_after",
            "reset_after",
        ),
        (
            Fault::ResetOfRejectionsIsEarly,
            "decisions",
            "reset_after",
            "reset_after",
        ),
        (
            Fault::ResetIsLate,
            "expiry",
            "into a reset_after",
            "reset_after",
        ),
        (Fault::ResetIsFarAway, "expiry", "a used key", "reset_after"),
        (
            Fault::UnusedKeysHaveAReset,
            "expiry",
            "unused key: reset_after",
            "reset_after",
        ),
        (
            Fault::RemainingNeverRises,
            "expiry",
            "a look after a reset_after",
            "remaining",
        ),
        (
            Fault::ImpossibleRequestsCharge,
            "nothing written",
            "rejections alone",
            "remaining",
        ),
        (
            Fault::ForgetsExtraCharges,
            "refunds",
            "3 more taken",
            "remaining",
        ),
        (
            Fault::MakesNoDebts,
            "refunds",
            "the debt refunded",
            "remaining",
        ),
        (
            Fault::ChargesTheNextKeyToo,
            "refunds",
            "another key",
            "remaining",
        ),
        (
            Fault::ResetsAllKeys,
            "reset",
            "another key's reset",
            "allowed",
        ),
        (
            Fault::AllowsRefusedSets,
            "all or nothing",
            "the answer must be false, but is true",
            "the answer",
        ),
        (
            Fault::GrantsInRefusedSets,
            "all or nothing",
            "acquire of a rejected set",
            "granted",
        ),
        (
            Fault::MixesTheDecisionsOnOneKey,
            "all or nothing",
            "of a set that one policy rejects",
            "allowed",
        ),
        (
            Fault::ChargesOnePolicyOfOneKey,
            "all or nothing",
            "acquire of a rejected set",
            "remaining",
        ),
        (
            Fault::TakesALimitOfZeroForNone,
            "dynamic quotas",
            "a limit of 0",
            "retry_after",
        ),
        (
            Fault::ForgetsWhenALimitIsRaised,
            "dynamic quotas",
            "used tokens stay used",
            "remaining",
        ),
        (
            Fault::KeepsALimitThatWasRaised,
            "dynamic quotas",
            "the policy's own quota again",
            "allowed",
        ),
    ] {
        let alone = kit(fault).only(check).run().await;
        let violation = alone.expect_err(&format!("{check} does not find {fault:?}"));
        assert_eq!(violation.check, check, "{fault:?}");
        assert_eq!(violation.field, field, "{fault:?}");
        let said = violation.to_string();
        assert!(said.contains(promise), "{fault:?}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_violation_names_the_check_the_operation_the_field_and_both_values() {
    let kit = kit(Fault::ForgetsRefunds).algorithms([Algorithm::TokenBucket]);
    let violation = kit.only("refunds").run().await.unwrap_err();
    assert_eq!(violation.check, "refunds");
    assert_eq!(violation.algorithm, Algorithm::TokenBucket);
    assert_eq!(violation.operation, "2 refunded of 20");
    assert_eq!(violation.field, "remaining");
    assert_eq!(violation.expected, "17");
    assert!(violation.actual.contains("remaining: 15"), "{violation}");
    assert_eq!(
        violation.to_string(),
        format!(
            "refunds, token bucket: 2 refunded of 20: remaining must be 17, but is {}",
            violation.actual
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_violation_of_a_decision_has_the_expected_and_the_actual_value_of_its_field() {
    let kit = kit(Fault::SaysAnotherLimit).only("decisions");
    let violation = kit.run().await.unwrap_err();
    let numbers = [violation.expected, violation.actual].map(|value| value.parse::<u64>());
    assert_eq!(violation.field, "limit");
    let [Ok(expected), Ok(actual)] = numbers else {
        panic!("{numbers:?}")
    };
    assert_eq!(actual, expected + 1);
}

/// The time of a decision is unknown, so only larger errors are found.
#[tokio::test(start_paused = true)]
async fn by_a_clock_that_cannot_be_paused_waits_are_looked_at_too() {
    for (fault, check, promise, field) in [
        (
            Fault::RetryIsMuchTooEarly,
            "retry",
            "after a retry_after",
            "allowed",
        ),
        (
            Fault::RetryIsMuchTooLate,
            "retry",
            "acquire at most",
            "allowed",
        ),
        (
            Fault::ResetIsMuchTooEarly,
            "expiry",
            "into a reset_after",
            "reset_after",
        ),
    ] {
        let clock = Sleeping::new(Duration::from_millis(2));
        let kit = Conformance::new(move || Faulty::new(fault), clock);
        let violation = kit.only(check).run().await.unwrap_err();
        assert_eq!(violation.field, field, "{fault:?}");
        let said = violation.to_string();
        assert!(said.contains(promise), "{fault:?}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_has_to_reject_the_algorithms_that_it_does_not_claim() {
    let kit = Conformance::new(Memory::default, Paused).algorithms([Algorithm::TokenBucket]);
    let violation = kit.run().await.unwrap_err();
    assert_eq!(violation.check, "building");
    assert_ne!(violation.algorithm, Algorithm::TokenBucket);
}

#[tokio::test(start_paused = true)]
async fn the_kit_leaves_out_features_that_a_backend_does_not_claim() {
    let kit = |fault| kit(fault).sequences(5);
    kit(Fault::IgnoresWants)
        .without_leases()
        .run()
        .await
        .unwrap();
    kit(Fault::IgnoresQuotas)
        .without_dynamic_quotas()
        .run()
        .await
        .unwrap();
}
