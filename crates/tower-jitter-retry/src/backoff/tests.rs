use proptest::prelude::*;

use super::*;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The random bits that stand for the fraction `r`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "r is in [0, 1)"
)]
fn bits(r: f64) -> u64 {
    ((r * 2_f64.powi(53)) as u64) << 11
}

/// The six lines that the article on the AWS SDK for JavaScript prints.
#[test]
fn the_aws_sdk_articles_delays_come_out_to_the_nanosecond() {
    let backoff = Backoff::exponential(ms(100), CAP);
    for (n, r, nanos) in [
        (0, 0.914_061_323_691_552_9, 91_406_132),
        (1, 0.374_107_103_869_296_46, 74_821_421),
        (2, 0.794_440_804_680_022, 317_776_322),
        (0, 0.588_581_682_197_422_8, 58_858_168),
        (1, 0.772_705_864_214_124_7, 154_541_173),
        (2, 0.692_322_955_585_932_7, 276_929_182),
    ] {
        let delay = backoff.delay(n, RetryReason::Transient, None, bits(r));
        assert_eq!(delay, Duration::from_nanos(nanos), "n = {n}, r = {r}");
    }
}

#[test]
fn each_kind_of_backoff_grows_as_documented() {
    let delays = |backoff: Backoff| {
        let schedule = backoff.jitter(Jitter::None).schedule();
        schedule.take(5).collect::<Vec<_>>()
    };
    assert_eq!(
        delays(Backoff::exponential(ms(10), ms(100))),
        [10, 20, 40, 80, 100].map(ms)
    );
    assert_eq!(
        delays(Backoff::exponential(ms(10), ms(100)).factor(1.5)),
        [10_000, 15_000, 22_500, 33_750, 50_625].map(Duration::from_micros)
    );
    assert_eq!(
        delays(Backoff::linear(ms(30), ms(100))),
        [30, 60, 90, 100, 100].map(ms)
    );
    assert_eq!(delays(Backoff::constant(ms(7))), [7; 5].map(ms));
    assert_eq!(delays(Backoff::none()), [0; 5].map(ms));
    let zero = Backoff::exponential(Duration::ZERO, CAP);
    assert!(zero.schedule().take(2_000).all(|delay| delay.is_zero()));
}

#[test]
fn each_jitter_follows_its_formula() {
    let backoff = Backoff::exponential(ms(100), CAP);
    let third = |jitter, r| {
        backoff
            .jitter(jitter)
            .delay(2, RetryReason::Transient, Some(ms(150)), bits(r))
    };
    assert_eq!(third(Jitter::None, 0.25), ms(400));
    assert_eq!(third(Jitter::Full, 0.25), ms(100));
    assert_eq!(third(Jitter::Equal, 0.25), ms(250));
    // 100 + 0.25 · (3 · 150 − 100)
    assert_eq!(
        third(Jitter::Decorrelated, 0.25),
        Duration::from_micros(187_500)
    );
}

/// tower 0.5.3 rounds jitter down to whole seconds: a base of 1 s with jitter always gives 1 s.
#[test]
fn jitter_keeps_its_precision() {
    let delays = Backoff::exponential(ms(1_000), CAP).seed(1).schedule();
    assert!(
        delays
            .take(20)
            .any(|delay| delay.subsec_nanos() % 1_000 != 0)
    );
}

#[test]
fn throttled_responses_start_from_a_longer_base() {
    let delay = |backoff: Backoff, n| {
        let backoff = backoff.jitter(Jitter::None);
        backoff.delay(n, RetryReason::Throttled, None, 0)
    };
    let backoff = Backoff::default();
    assert_eq!(
        [0, 1, 2].map(|n| delay(backoff, n)),
        [1, 2, 4].map(Duration::from_secs)
    );
    assert_eq!(delay(backoff.throttled_base(ms(300)), 0), ms(300));
    assert_eq!(delay(backoff.throttled_base(ms(30)), 0), ms(100));
    assert_eq!(delay(Backoff::exponential(ms(10), ms(50)), 0), ms(50));
    assert_eq!(delay(Backoff::constant(ms(10)), 0), ms(10));
}

#[test]
fn a_seed_repeats_and_neighbouring_seeds_share_nothing() {
    let take = |seed| {
        let schedule = Backoff::default().seed(seed).schedule();
        schedule.take(8).collect::<Vec<_>>()
    };
    assert_eq!(take(7), take(7));
    assert_ne!(take(7), take(8));
    let seeds = |seed| {
        let seeds = Backoff::default().seed(seed).seeds();
        (0..1_000)
            .map(|_| seeds.next())
            .collect::<std::collections::HashSet<_>>()
    };
    assert_eq!(seeds(7).len(), 1_000);
    assert!(seeds(7).is_disjoint(&seeds(8)));
    assert_ne!(
        Backoff::default().schedule().next(),
        Backoff::default().schedule().next()
    );
}

#[test]
fn a_wrong_value_is_named_with_its_bound() {
    for (backoff, message) in [
        (
            Backoff::exponential(ms(100), ms(10)),
            "backoff.cap is 10ms, but must be at least the first delay of 100ms",
        ),
        (
            Backoff::linear(ms(100), ms(10)),
            "backoff.cap is 10ms, but must be at least the first delay of 100ms",
        ),
        (
            Backoff::default().factor(0.5),
            "backoff.factor is 0.5, but must be finite and at least 1",
        ),
        (
            Backoff::default().factor(f64::NAN),
            "backoff.factor is NaN, but must be finite and at least 1",
        ),
        (
            Backoff::default().factor(f64::INFINITY),
            "backoff.factor is inf, but must be finite and at least 1",
        ),
    ] {
        assert_eq!(backoff.validate().unwrap_err().to_string(), message);
    }
    Backoff::default().validate().unwrap();
    Backoff::exponential(Duration::ZERO, Duration::ZERO)
        .validate()
        .unwrap();
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..10_000_000_000_u64).prop_map(Duration::from_nanos),
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n)),
    ]
}

fn backoffs() -> impl Strategy<Value = Backoff> {
    let growth = prop_oneof![
        (durations(), durations(), any::<f64>(), durations()).prop_map(
            |(base, cap, factor, throttled_base)| {
                let backoff = Backoff::exponential(base, cap).factor(factor);
                backoff.throttled_base(throttled_base)
            }
        ),
        (durations(), durations()).prop_map(|(step, cap)| Backoff::linear(step, cap)),
        durations().prop_map(Backoff::constant),
        Just(Backoff::none()),
    ];
    let jitter = prop::sample::select(vec![
        Jitter::None,
        Jitter::Full,
        Jitter::Equal,
        Jitter::Decorrelated,
    ]);
    (growth, jitter).prop_map(|(growth, jitter)| growth.jitter(jitter))
}

proptest! {
    /// The cap holds even for an unchecked backoff.
    #[test]
    fn no_delay_is_ever_above_the_cap(
        backoff in backoffs(),
        retry: u32,
        previous in durations(),
        throttled: bool,
        random: u64,
    ) {
        let reason = if throttled { RetryReason::Throttled } else { RetryReason::Transient };
        let delay = backoff.delay(retry, reason, Some(previous), random);
        prop_assert!(delay <= backoff.cap);
    }

    #[test]
    fn equal_jitter_keeps_half_and_none_keeps_all(backoff in backoffs(), retry: u32, random: u64) {
        let delay = |jitter| backoff.jitter(jitter).delay(retry, RetryReason::Transient, None, random);
        prop_assert!(delay(Jitter::Equal) >= delay(Jitter::None) / 2);
        prop_assert!(delay(Jitter::Equal) <= delay(Jitter::None));
    }
}

#[test]
fn decorrelated_jitter_leaves_a_constant_backoff_as_it_is() {
    let delay = Duration::from_millis(100);
    let backoff = Backoff::constant(delay).jitter(Jitter::Decorrelated);
    assert!(backoff.schedule().take(100).all(|each| each == delay));
}
