mod threads;

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::budget::tests::spend_all;

/// One token, which only a deposit refills.
fn one_token() -> Budget {
    Budget::ratio(1.0).burst(1)
}

fn spend(budgets: &Budgets, key: &str) -> bool {
    budgets.get(key).withdraw().map(|it| it.spend()).is_some()
}

/// Whether `key` gets the budget that keys without a partition share.
fn is_shared(budgets: &Budgets, key: &str) -> bool {
    budgets.0.is_shared(&budgets.get(key))
}

#[test]
fn each_key_has_its_own_budget_in_any_type_of_key() {
    let budgets = Budgets::new(Budget::ratio(0.0).burst(3));
    assert!(budgets.get("a").is(&budgets.get(&String::from("a"))));
    assert!(budgets.clone().get("a").is(&budgets.get("a")));
    assert_eq!(spend_all(&budgets.get("a")), 3);
    assert_eq!(spend_all(&budgets.get("b")), 3);
    assert_eq!(spend_all(&budgets.get("a")), 0);
    assert_eq!(spend_all(&budgets.get(&("a", 443))), 3);
    assert_eq!(budgets.0.partitions(), 3);
}

#[test]
fn a_setter_makes_new_partitions_and_keeps_the_template() {
    let template = one_token();
    let budgets = Budgets::new(template.clone());
    assert!(spend(&budgets, "a"));
    assert!(template.withdraw().is_some());
    template.withdraw().unwrap().spend();
    assert!(spend(&budgets, "b"));
    assert!(spend(&budgets.clone().capacity(5), "a"));
    assert!(!spend(&budgets, "a"));
}

#[test]
fn keys_without_room_share_one_budget() {
    let budgets = Budgets::new(one_token()).capacity(20);
    let keys: Vec<_> = (0..20).map(|key| key.to_string()).collect();
    assert!(keys.iter().all(|key| spend(&budgets, key)));
    assert!(spend(&budgets, "one more"));
    assert!(!spend(&budgets, "and another"));
    assert!(budgets.get("one more").is(&budgets.get("and another")));
    budgets.get("one more").deposit();
    assert!(spend(&budgets, "and another"));
    assert!(!keys.iter().any(|key| spend(&budgets, key)));
    assert_eq!(budgets.0.partitions(), 20);
}

#[test]
fn a_full_partition_is_evicted_for_a_new_key() {
    let budgets = Budgets::new(one_token()).capacity(1);
    assert!(spend(&budgets, "a"));
    assert!(is_shared(&budgets, "b"));
    budgets.get("a").deposit();
    assert!(!is_shared(&budgets, "b"));
    assert_eq!(budgets.0.partitions(), 1);
}

#[test]
fn a_partition_stays_while_it_has_a_clone_or_a_permit() {
    let budgets = Budgets::new(one_token()).capacity(1);
    let clone = budgets.get("a");
    assert!(is_shared(&budgets, "b"));
    let permit = clone.withdraw().unwrap();
    // The bucket is full again, but the permit may still return its token.
    clone.deposit();
    drop(clone);
    assert!(is_shared(&budgets, "b"));
    permit.spend();
    assert!(!is_shared(&budgets, "b"));
}

#[test]
fn a_permit_that_outlives_many_other_keys_returns_to_its_own_partition() {
    let budgets = Budgets::new(one_token()).capacity(1);
    let permit = budgets.get("a").withdraw().unwrap();
    for key in 0..100 {
        drop(budgets.get(&key));
    }
    assert!(!spend(&budgets, "a"));
    drop(permit);
    assert!(spend(&budgets, "a"));
    assert!(!spend(&budgets, "a"));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_time_has_filled_is_evicted_for_a_new_key() {
    let budgets = Budgets::new(Budget::ratio(0.0).per_second(1).burst(2)).capacity(1);
    assert_eq!(spend_all(&budgets.get("a")), 2);
    advance(Duration::from_nanos(1_999_999_999)).await;
    assert!(is_shared(&budgets, "b"));
    advance(Duration::from_nanos(1)).await;
    assert!(!is_shared(&budgets, "b"));
    // The new partition starts full, like the evicted one.
    advance(Duration::from_secs(1)).await;
    assert_eq!(spend_all(&budgets.get("a")), 2);
}

/// Hosts come and go, and no successful call refills the partition of a host that has gone.
#[tokio::test(start_paused = true)]
async fn a_partition_that_is_never_idle_is_evicted_90_seconds_after_its_last_use() {
    for template in [
        Budget::ratio(0.05).initial(10),
        Budget::ratio(0.05).burst(10),
        Budget::grpc_throttle(10, 0.1),
    ] {
        let budgets = Budgets::new(template).capacity(8);
        let use_up = |host: u32| {
            let budget = budgets.get(&host);
            budget.withdraw().unwrap().spend();
            budget.record_failure();
        };
        // Each of the first hosts fails once.
        (0..8).for_each(use_up);
        assert!(is_shared(&budgets, "new"));
        advance(Duration::from_secs(89)).await;
        // Only host 7 is still in use.
        use_up(7);
        assert!(is_shared(&budgets, "new"));
        advance(Duration::from_secs(1)).await;
        for newcomer in ["a", "b", "c", "d", "e", "f", "g"] {
            assert!(!is_shared(&budgets, newcomer), "{newcomer}");
        }
        assert!(
            !budgets.get(&7).0.unwrap().is_idle(),
            "its own, with a token spent"
        );
        assert_eq!(budgets.0.partitions(), 8);
    }
}

/// Time returns no tokens here, so an early eviction would add tokens.
#[test]
fn without_tokens_per_second_a_partition_with_spent_tokens_is_not_evicted_immediately() {
    let budgets = Budgets::new(Budget::ratio(0.5).burst(2)).capacity(3);
    assert!(spend(&budgets, "a"));
    for key in 0..1_000 {
        drop(budgets.get(&key));
    }
    assert!(spend(&budgets, "a"));
    assert!(!spend(&budgets, "a"));
}

#[test]
fn of_partitions_that_start_empty_only_untouched_ones_are_evicted() {
    let budgets = Budgets::new(Budget::ratio(0.5).burst(2).initial(0)).capacity(2);
    budgets.get("saves").deposit();
    for key in 0..1_000 {
        assert_eq!(spend_all(&budgets.get(&key)), 0);
        assert!(!budgets.0.is_shared(&budgets.get(&key)));
    }
    budgets.get("saves").deposit();
    assert!(spend(&budgets, "saves"));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_starts_below_its_burst_never_returns_with_more_tokens() {
    let template = Budget::ratio(0.0).per_second(1).burst(5).initial(1);
    let budgets = Budgets::new(template).capacity(1);
    assert!(spend(&budgets, "a"));
    advance(Duration::from_secs(4)).await;
    assert!(is_shared(&budgets, "b"));
    assert_eq!(spend_all(&budgets.get("a")), 4);
    advance(Duration::from_secs(5)).await;
    assert!(!is_shared(&budgets, "b"));
    assert_eq!(spend_all(&budgets.get("a")), 1);
}

#[test]
fn a_throttle_is_evicted_when_successes_have_made_up_for_its_failures() {
    let budgets = Budgets::new(Budget::grpc_throttle(2, 0.5)).capacity(1);
    budgets.get("a").record_failure();
    budgets.get("a").deposit();
    assert!(is_shared(&budgets, "b"));
    assert!(budgets.get("a").withdraw().is_some());
    budgets.get("a").deposit();
    assert!(!is_shared(&budgets, "b"));
    // The failures of all keys without a partition count together.
    budgets.get("b").record_failure();
    budgets.get("c").record_failure();
    assert!(budgets.get("d").withdraw().is_none());
}

#[test]
fn an_unlimited_template_gets_no_partitions() {
    let budgets = Budgets::new(Budget::unlimited());
    for key in 0..10 {
        assert!(budgets.get(&key).withdraw().is_some());
    }
    assert_eq!(budgets.0.partitions(), 0);
}

#[test]
fn a_million_hostile_keys_get_no_more_than_the_capacity_allows() {
    let budgets = Budgets::new(Budget::ratio(0.0).burst(2));
    let spent: u32 = (0..1_000_000)
        .map(|key| spend_all(&budgets.get(&key)))
        .sum();
    assert_eq!(spent, (256 + 1) * 2);
    assert_eq!(budgets.0.partitions(), 256);
}

#[test]
fn a_million_keys_without_retries_leave_room_for_the_next_key() {
    let budgets = Budgets::new(Budget::default());
    (0..1_000_000).for_each(|key| budgets.get(&key).deposit());
    assert!(budgets.0.partitions() <= 256);
    // One of the 32 shards may be empty.
    let mut calls = (0..=32).map(|_| budgets.get("the next"));
    assert!(calls.any(|budget| !budgets.0.is_shared(&budget)));
}

#[test]
fn a_wrong_value_is_named_with_its_bound() {
    let default = || Budgets::new(Budget::default());
    for (budgets, message) in [
        (
            default().capacity(0),
            "budgets.capacity is 0, but must be from 1 to 1048576 partitions",
        ),
        (
            default().capacity(1_048_577),
            "budgets.capacity is 1048577, but must be from 1 to 1048576 partitions",
        ),
        (
            Budgets::new(Budget::default().burst(0)),
            "budget.burst is 0, but must be at least 1; to switch extra attempts off use Mode::Off",
        ),
    ] {
        assert_eq!(budgets.validate().unwrap_err().to_string(), message);
        // Budgets that were not validated are still safe to use.
        drop(budgets.get("a").withdraw());
    }
    default().validate().unwrap();
    default().capacity(1).validate().unwrap();
    default().capacity(1 << 20).validate().unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Deposit(u8),
    Withdraw(u8),
    /// Returns the token of the oldest permit, or spends it.
    Refund,
    Spend,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2_000_u64).prop_map(Step::Wait),
        (0..6_u8).prop_map(Step::Deposit),
        (0..6_u8).prop_map(Step::Withdraw),
        Just(Step::Refund),
        Just(Step::Spend),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// However keys come and go, no key gets more tokens than its own budget and the shared one give. All keys together
    /// get no more than the capacity allows.
    #[test]
    fn keys_that_come_and_go_get_no_more_tokens(
        steps in steps(),
        tenths in 0..20_u32,
        per_second in 0..5_u32,
        burst in 1..4_u32,
        initial in 0..4_u32,
        capacity in 1..4_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let template = Budget::ratio(f64::from(tenths) / 10.0).per_second(per_second);
            let template = template.burst(burst).initial(initial.min(burst));
            let budgets = Budgets::new(template).capacity(capacity);
            // In tenths of a token: the maximum for a key's own partitions, the tokens that they gave, and the sum of
            // all tokens given.
            let (mut allowed, mut own, mut all) = ([0; 6], [0; 6], 0);
            let (mut millis, mut deposits, mut permits) = (0, 0, Vec::new());
            for step in steps {
                match step {
                    Step::Wait(wait) => {
                        advance(Duration::from_millis(wait)).await;
                        millis += wait;
                    }
                    Step::Deposit(key) => {
                        budgets.get(&key).deposit();
                        deposits += u64::from(tenths);
                        allowed[usize::from(key)] += u64::from(tenths);
                    }
                    Step::Withdraw(key) => {
                        let budget = budgets.get(&key);
                        let shared = budgets.0.is_shared(&budget);
                        permits.extend(budget.withdraw().map(|permit| (permit, key, shared)));
                    }
                    Step::Refund if !permits.is_empty() => drop(permits.remove(0)),
                    Step::Spend if !permits.is_empty() => {
                        let (permit, key, shared) = permits.remove(0);
                        permit.spend();
                        all += 10;
                        own[usize::from(key)] += if shared { 0 } else { 10 };
                    }
                    Step::Refund | Step::Spend => {}
                }
                prop_assert!(budgets.0.partitions() <= capacity);
                let each = u64::from(burst) * 10 + u64::from(per_second) * millis / 100;
                prop_assert!(all <= deposits + (capacity as u64 + 1) * each);
                for (allowed, own) in allowed.iter().zip(own) {
                    prop_assert!(own <= allowed + each);
                }
            }
            Ok(())
        })?;
    }
}
