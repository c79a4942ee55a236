//! The caller drops the call, in each state of the call.

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower_hedge_latency::{Budget, SkipReason};
use tower_test::mock;

use crate::support::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    NotPolled,
    PrimaryOut,
    HedgeNotReady,
    HedgeOut,
    PrimaryFailed,
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_nothing_behind_in_any_state() {
    use State::*;
    for state in [
        NotPolled,
        PrimaryOut,
        HedgeNotReady,
        HedgeOut,
        PrimaryFailed,
    ] {
        let log = Log::default();
        let budget = Budget::ratio(0.0).burst(1);
        let layer = fixed(10).budget(budget.clone()).observer(log.clone());
        let layer = layer.build().unwrap();
        let handle = layer.handle();
        let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
        mock.allow(if state == HedgeNotReady { 1 } else { 2 });
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        let mut attempts = vec![next(&mut mock).await];
        if state != NotPolled {
            assert_pending!(call.poll());
        }
        if [HedgeNotReady, HedgeOut, PrimaryFailed].contains(&state) {
            advance(ms(10)).await;
            assert_pending!(call.poll());
        }
        let hedged = [HedgeOut, PrimaryFailed].contains(&state);
        if hedged {
            attempts.push(next(&mut mock).await);
        }
        if state == PrimaryFailed {
            attempts.remove(0).send_error("reset");
            assert_pending!(call.poll());
        }
        drop(call);
        // Only a hedge that was sent costs a token.
        assert_eq!(budget.withdraw().is_none(), hedged, "{state:?}");
        let mut expected = vec![Started(1)];
        match state {
            NotPolled | PrimaryOut => {}
            HedgeNotReady => expected.push(Skipped(2, SkipReason::NotReady)),
            HedgeOut => expected.push(Started(2)),
            PrimaryFailed => expected.extend([Started(2), Failed(1)]),
        }
        expected.push(Cancelled);
        assert_eq!(log.take(), expected, "{state:?}");
        let counts = handle.counts();
        assert_eq!((counts.calls, counts.cancelled), (1, 1), "{state:?}");
        // The receivers of these attempts are dropped.
        for attempt in attempts {
            attempt.send_response(1);
        }
    }
}
