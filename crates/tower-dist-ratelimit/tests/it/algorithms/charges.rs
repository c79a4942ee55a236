//! Leases, dynamic quotas and policy sets.

use super::*;

fn acquire(memory: &Memory, charges: &[Charge<'_>]) -> (bool, Decisions) {
    let mut out = Decisions::rejected(charges.len());
    let Answer::Done(allowed) = memory.acquire(charges, &mut out) else {
        panic!("memory answers at once")
    };
    (allowed, out)
}

fn one(memory: &Memory, charge: Charge<'_>) -> Decision {
    acquire(memory, &[charge]).1[0]
}

fn registered(memory: &Memory, policy: Policy) -> PolicyId {
    memory.register(&[policy]).unwrap()[0]
}

#[tokio::test(start_paused = true)]
async fn a_lease_grants_the_available_tokens_between_the_cost_and_the_wanted_number() {
    for (name, of) in ALL.into_iter().filter(|(name, _)| *name != "leaky queue") {
        let memory = Memory::default();
        let policy = registered(&memory, of(per_minute(10)));
        let charge = Charge::new(policy, b"a", 2);
        let granted = |want| {
            let decision = one(&memory, charge.up_to(want));
            (decision.allowed, decision.granted, decision.remaining)
        };
        assert_eq!(granted(6), (true, 6, 4), "{name}");
        assert_eq!(granted(0), (true, 2, 2), "{name}: less than the cost");
        assert_eq!(granted(u64::MAX), (true, 2, 0), "{name}: what is left");
        assert_eq!(
            granted(u64::MAX),
            (false, 0, 0),
            "{name}: less than the cost is left"
        );
        let look = one(&memory, Charge::new(policy, b"b", 0).up_to(5));
        assert_eq!((look.granted, look.remaining), (0, 10), "{name}: a look");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_bucket_is_rounded_down_to_whole_tokens() {
    let memory = Memory::default();
    let policy = registered(&memory, Policy::new("p", Quota::per_second(10)));
    let charge = Charge::new(policy, b"a", 1).up_to(100);
    assert_eq!(one(&memory, charge).granted, 10);
    advance(Duration::from_millis(299)).await;
    assert_eq!(one(&memory, charge).granted, 2);
    advance(Duration::from_millis(1)).await;
    assert_eq!(one(&memory, charge).granted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_charge_with_its_own_quota_needs_a_policy_with_dynamic_quotas() {
    for (name, of) in ALL {
        let memory = Memory::default();
        let [fixed, dynamic] = [of(per_minute(10)), of(per_minute(10)).dynamic_quotas()]
            .map(|policy| registered(&memory, policy));
        let twice = Quota::per_minute(20);
        let answer = memory.acquire(
            &[Charge::new(fixed, b"a", 1).quota(twice)],
            &mut [Decision::default()],
        );
        assert!(matches!(answer, Answer::Failed(_)), "{name}");
        let decision = one(&memory, Charge::new(dynamic, b"a", 1).quota(twice));
        assert_eq!((decision.allowed, decision.limit), (true, 20), "{name}");
        let decision = one(&memory, Charge::new(dynamic, b"b", 1));
        assert_eq!((decision.allowed, decision.limit), (true, 10), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn sets_of_any_algorithms_are_charged_to_all_or_to_none() {
    let policies: Vec<Policy> = ALL
        .iter()
        .map(|(name, of)| of(Policy::new(*name, Quota::per_minute(10))))
        .chain([Policy::new("tight", Quota::per_minute(3)).sliding_window_log()])
        .collect();
    let memory = Memory::default();
    let ids = memory.register(&policies).unwrap();
    let charges: Vec<_> = ids.iter().map(|id| Charge::new(*id, b"a", 1)).collect();
    for _ in 0..3 {
        assert!(acquire(&memory, &charges).0);
    }
    for _ in 0..20 {
        let (allowed, decisions) = acquire(&memory, &charges);
        assert!(!allowed && !decisions[10].allowed);
        assert!(
            decisions[..10]
                .iter()
                .all(|one| one.allowed && one.granted == 0)
        );
    }
    let looks: Vec<_> = ids.iter().map(|id| Charge::new(*id, b"a", 0)).collect();
    for (number, left) in acquire(&memory, &looks).1.iter().enumerate() {
        let expected = match number {
            2 => 61 / 6 - 2,
            10 => 0,
            _ => 7,
        };
        assert_eq!(left.remaining, expected, "{}", policies[number].name());
    }
}
