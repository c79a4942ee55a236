//! The kit for those who write a backend: the one in memory passes, and each check finds the backend that breaks what it
//! is about.

mod faulty;

use std::time::Duration;

use tower_dist_ratelimit::{
    Algorithm,
    backend::{BoxFuture, Memory},
    conformance::{Clock, Conformance, Sleeping},
};

use self::faulty::{Fault, Faulty};

/// The clock that moves only when it is told to.
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

/// The one check that is about threads; it waits for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_admits_exactly_what_there_is_to_threads_that_race() {
    let clock = Sleeping::new(Duration::from_millis(2));
    Conformance::new(Memory::default, clock)
        .only("racing")
        .run()
        .await
        .unwrap();
}

#[test]
#[should_panic(expected = r#"no check is called "race""#)]
fn a_check_that_there_is_not_is_no_check_that_passes() {
    let _ = Conformance::new(Memory::default, Paused).only("race");
}

fn kit(fault: Fault) -> Conformance {
    Conformance::new(move || Faulty::new(fault), Paused)
}

#[tokio::test(start_paused = true)]
async fn each_check_finds_the_backend_that_breaks_what_it_is_about() {
    for (fault, check) in [
        (Fault::RemainingIsOneTooMany, "decisions"),
        (Fault::RefusesTheLast, "decisions"),
        (Fault::IgnoresWants, "decisions"),
        (Fault::RetryIsEarly, "retry"),
        (Fault::RetryIsLate, "retry"),
        (Fault::ResetIsEarly, "expiry"),
        (Fault::RejectionsCharge, "nothing written"),
        (Fault::ForgetsRefunds, "refunds"),
        (Fault::RefundsMoreThanTheCost, "refunds"),
        (Fault::ForgetsResets, "reset"),
        (Fault::CutsKeysAtNul, "keys"),
        (Fault::CutsKeysAt1024, "keys"),
        (Fault::ReadsKeysAsText, "keys"),
        (Fault::TakesPartsForKeys, "keys"),
        (Fault::LooksThenTakes, "racing"),
        (Fault::ChargesOneByOne, "all or nothing"),
        (Fault::IgnoresQuotas, "dynamic quotas"),
    ] {
        let alone = kit(fault).only(check).run().await;
        let violation = alone.expect_err(&format!("{check} does not find {fault:?}"));
        assert_eq!(violation.check(), check, "{fault:?}");
        let all = kit(fault).run().await;
        assert!(all.is_err(), "{fault:?} passes");
    }
}

/// By which of its promises.
#[tokio::test(start_paused = true)]
async fn each_promise_of_a_check_finds_what_no_other_does() {
    for (fault, check, promise) in [
        (Fault::SaysAnotherLimit, "decisions", "wanted"),
        (Fault::LetsNobodyWait, "decisions", "wanted"),
        (Fault::ForgetsRefunds, "decisions", "wanted"),
        (Fault::TellsThoseWhoPassToWait, "decisions", "cost"),
        (Fault::ResetIsLate, "expiry", "1 ns before it"),
        (Fault::ResetIsFarAway, "expiry", "used, but"),
        (Fault::UnusedKeysHaveAReset, "expiry", "nobody has used"),
        (Fault::RemainingNeverRises, "expiry", "its time is over"),
        (
            Fault::ImpossibleRequestsCharge,
            "nothing written",
            "only rejected",
        ),
        (Fault::ForgetsExtraCharges, "refunds", "3 more taken"),
        (Fault::MakesNoDebts, "refunds", "the debt refunded"),
        (Fault::ChargesTheNextKeyToo, "refunds", "another key"),
        (Fault::ResetsAllKeys, "reset", "another key was reset"),
        (
            Fault::AllowsRefusedSets,
            "all or nothing",
            "the answer is true",
        ),
        (Fault::GrantsInRefusedSets, "all or nothing", "but charged"),
        (
            Fault::TakesALimitOfZeroForNone,
            "dynamic quotas",
            "a limit of 0",
        ),
        (
            Fault::ForgetsWhenALimitIsRaised,
            "dynamic quotas",
            "is forgotten",
        ),
        (
            Fault::KeepsALimitThatWasRaised,
            "dynamic quotas",
            "back to the policy's own",
        ),
    ] {
        let alone = kit(fault).only(check).run().await;
        let violation = alone.expect_err(&format!("{check} does not find {fault:?}"));
        assert_eq!(violation.check(), check, "{fault:?}");
        let said = violation.to_string();
        assert!(said.contains(promise), "{fault:?}: {said}");
    }
}

/// Where nobody knows when exactly a request was decided, only what is wrong by more than that.
#[tokio::test(start_paused = true)]
async fn by_a_clock_that_cannot_be_paused_waits_are_looked_at_too() {
    for (fault, check, promise) in [
        (Fault::RetryIsMuchTooEarly, "retry", "rejected again"),
        (Fault::RetryIsMuchTooLate, "retry", "allowed at most"),
        (Fault::ResetIsMuchTooEarly, "expiry", "were left"),
    ] {
        let clock = Sleeping::new(Duration::from_millis(2));
        let kit = Conformance::new(move || Faulty::new(fault), clock);
        let violation = kit.only(check).run().await.unwrap_err();
        let said = violation.to_string();
        assert!(said.contains(promise), "{fault:?}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_says_it_does_not_have_it_has_to_reject() {
    let kit = Conformance::new(Memory::default, Paused).algorithms([Algorithm::TokenBucket]);
    let violation = kit.run().await.unwrap_err();
    assert_eq!(violation.check(), "building");
    assert_ne!(violation.algorithm(), Algorithm::TokenBucket);
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_does_not_claim_is_not_asked_of_it() {
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
