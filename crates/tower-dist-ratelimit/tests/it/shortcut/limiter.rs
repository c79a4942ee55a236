//! Without tower.

use proptest::prelude::*;
use tower_dist_ratelimit::{Limiter, LimiterBuilder, Quota};

use super::{Log, Pause, Rules, both, costs, keys, pauses, play, rules};

#[derive(Clone, Debug)]
enum Step {
    Check,
    CheckN(u64),
    /// A check with its own quota.
    Quoted(u64, u64),
    Peek,
    Charge(u64),
    Refund(u64),
    Reset,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Check),
        4 => costs().prop_map(Step::CheckN),
        1 => (0_u64..30, costs()).prop_map(|(limit, cost)| Step::Quoted(limit, cost)),
        2 => Just(Step::Peek),
        1 => costs().prop_map(Step::Charge),
        2 => costs().prop_map(Step::Refund),
        1 => Just(Step::Reset),
    ]
}

type Traffic = Vec<(Pause, Option<u8>, Step)>;

fn traffic() -> impl Strategy<Value = Traffic> {
    prop::collection::vec((pauses(), keys(), steps()), 1..60)
}

async fn take(limiter: &Limiter, log: &Log, key: Option<u8>, step: &Step) {
    let key = key.map(|key| key.to_string());
    match *step {
        Step::Check | Step::CheckN(_) | Step::Quoted(..) | Step::Peek => {
            let decision = match *step {
                Step::CheckN(cost) => limiter.check_n(key, cost).await,
                Step::Quoted(limit, cost) => {
                    let limiter = limiter.with_quota(Quota::per_second(limit));
                    limiter.check_n(key, cost).await
                }
                Step::Peek => limiter.peek(key).await,
                _ => limiter.check(key).await,
            };
            if let Ok(decision) = &decision {
                log.come_back(decision.retry_after);
            }
            log.note(format_args!("{decision:?}"));
        }
        Step::Charge(tokens) => log.note(format_args!("{:?}", limiter.charge(key, tokens).await)),
        Step::Refund(tokens) => log.note(format_args!("{:?}", limiter.refund(key, tokens).await)),
        Step::Reset => log.note(format_args!("{:?}", limiter.reset(key).await)),
    }
}

/// Runs the operations through the shortcut and through the general path.
async fn run(
    rules: &Rules,
    room: usize,
    traffic: &Traffic,
    build: impl Fn(LimiterBuilder, &Log) -> LimiterBuilder,
) -> [Vec<String>; 2] {
    let sides = both(room, |backend| {
        let log = Log::start();
        let builder = build(Limiter::builder(backend, rules.policy()), &log);
        (builder.build().unwrap(), log)
    });
    for (pause, key, step) in traffic {
        pause.wait(&sides[0].1).await;
        for (limiter, log) in &sides {
            take(limiter, log, *key, step).await;
        }
    }
    sides.map(|(_, log)| log.all())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_limiter_makes_the_same_decisions_on_the_shortcut_and_on_the_general_path(
        rules in rules(), room in 1_usize..40, traffic in traffic()
    ) {
        let [short, long] = play(run(&rules, room, &traffic, |builder, _| builder));
        prop_assert_eq!(short, long);
    }

    #[test]
    fn a_limiter_emits_the_same_events_on_the_shortcut_and_on_the_general_path(
        rules in rules(), room in 1_usize..40, shadow in any::<bool>(), traffic in traffic()
    ) {
        let [short, long] = play(run(&rules, room, &traffic, |builder, log| {
            let builder = builder.observer(log.clone());
            if shadow { builder.shadow() } else { builder }
        }));
        prop_assert_eq!(short, long);
    }
}
