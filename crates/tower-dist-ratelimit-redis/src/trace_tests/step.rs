use proptest::prelude::*;
use tower_dist_ratelimit::Quota;

/// One event of a key.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Microseconds since the previous step; negative if the clock jumps back.
    pub(super) wait: i64,
    pub(super) cost: u64,
    pub(super) want: u64,
    /// A correction instead of a request.
    pub(super) settle: Option<i64>,
    pub(super) quota: Option<Quota>,
}

pub(super) fn steps(quota: Quota) -> impl Strategy<Value = Vec<Step>> {
    let window = i64::try_from(quota.window().as_micros()).unwrap();
    let token = window / quota.limit().cast_signed() + 1;
    let wait = prop_oneof![
        3 => Just(0),
        6 => 0..=2 * token,
        2 => 0..=window,
        1 => 0..=3 * window,
        1 => -window..=0,
        1 => -30 * window..=0,
    ];
    let burst = quota.burst_size();
    let cost = prop_oneof![0..=2_u64, 0..=burst + 1];
    let settle =
        prop::option::weighted(0.15, -burst.cast_signed() - 1..=burst.cast_signed() / 2 + 1);
    let other = (0_u64..300, 1_u64..100).prop_map(move |(limit, burst)| {
        let other = Quota::new(limit, quota.window());
        if quota.burst_size() == quota.limit() {
            other
        } else {
            other.burst(burst)
        }
    });
    // Policies with a fixed quota ignore it.
    let other = prop::option::weighted(0.3, other);
    let step =
        (wait, cost, 0..=burst + 2, settle, other).prop_map(|(wait, cost, want, settle, quota)| {
            Step {
                wait,
                cost,
                want,
                settle,
                quota,
            }
        });
    // After a full refund the script deletes the key, and the arithmetic keeps a state of the present time. The two
    // differ if the clock jumps back behind it. So a trace has refunds or jumps.
    (prop::collection::vec(step, 1..40), any::<bool>()).prop_map(|(mut steps, jumps)| {
        for step in &mut steps {
            if jumps {
                step.settle = None;
            } else {
                step.wait = step.wait.max(0);
            }
        }
        steps
    })
}
