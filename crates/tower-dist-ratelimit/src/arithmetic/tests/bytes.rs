//! The byte layout of states.

use std::time::Duration;

use proptest::prelude::*;

use super::traffic::{ALL, any_built};
use crate::{
    Algorithm, Decision, Quota,
    arithmetic::{Limit, MAX_LOG, charge_all},
    backend::{Charge, PolicyId},
};

const SECOND: u64 = 1_000_000_000;

fn charge(cost: u64) -> Charge<'static> {
    Charge::new(PolicyId::new(0), b"", cost)
}

fn limit(algorithm: Algorithm, limit: u64) -> Limit {
    Limit::new(algorithm, Quota::per_minute(limit)).unwrap()
}

/// Other instances read these bytes, so a changed layout needs another first byte.
#[test]
fn the_byte_layout_of_every_algorithm_is_stable() {
    let bucket = [
        5, 170, 213, 170, 213, 202, 1, 10, 128, 176, 157, 194, 223, 1, 10, 128, 168, 214, 185, 7,
    ];
    let bytes: [&[u8]; 9] = [
        &[&[0x11], &bucket[..]].concat(),
        &[&[0x11], &bucket[..]].concat(),
        &[&[0x12], &bucket[..]].concat(),
        &[0x13, 1, 131, 128, 128, 128, 128, 8],
        &[0x14, 2, 128, 196, 136, 159, 227, 1, 3],
        &[0x15, 3, 0, 3, 0],
        &[0x15, 6, 0, 3, 0, 0, 0, 0],
        &[0x15, 6, 0, 3, 0, 0, 0, 0],
        &[0x16, 4, 128, 148, 235, 220, 3, 1, 128, 148, 235, 220, 3, 2],
    ];
    for (algorithm, expected) in ALL.into_iter().zip(bytes) {
        let limit = limit(algorithm, 10);
        let mut state = limit.unused(0);
        state.charge(SECOND, &charge(1));
        state.charge(2 * SECOND, &charge(2));
        assert_eq!(state.to_bytes(), expected, "{algorithm:?}");
    }
}

#[test]
fn bytes_of_another_algorithm_do_not_parse() {
    for (number, algorithm) in ALL.into_iter().enumerate() {
        let mut state = limit(algorithm, 10).unused(0);
        state.charge(SECOND, &charge(1));
        let bytes = state.to_bytes();
        for (other, reader) in ALL.into_iter().enumerate() {
            let read = limit(reader, 10).read(0, &bytes);
            let same = limit(reader, 10).unused(0).to_bytes()[0] == bytes[0];
            assert!(same || read.is_none(), "{algorithm:?} as {reader:?}");
            assert!(number != other || read.is_some(), "{algorithm:?}");
        }
        for end in 0..bytes.len() {
            assert!(limit(algorithm, 10).read(0, &bytes[..end]).is_none());
        }
        assert!(
            limit(algorithm, 10)
                .read(0, &[&bytes[..], &[0]].concat())
                .is_none()
        );
    }
}

#[test]
fn the_longest_log_survives_a_round_trip_through_bytes() {
    let log = limit(Algorithm::SlidingWindowLog, MAX_LOG);
    let mut state = log.unused(0);
    for nanos in 0..MAX_LOG {
        assert!(state.charge(nanos, &charge(1)).allowed);
    }
    let mut read = log.read(0, &state.to_bytes()).unwrap();
    assert!(!read.charge(MAX_LOG, &charge(1)).allowed);
    assert_eq!(read.decide(60 * SECOND + 4, &charge(0)).remaining, 5);
}

/// Near the end of a window the previous window counts little, so both can be full.
#[test]
fn two_full_windows_survive_a_round_trip_through_bytes() {
    let quota = Quota::new(1 << 61, Duration::from_secs(1));
    let limit = Limit::new(Algorithm::SlidingWindow, quota).unwrap();
    let mut state = limit.unused(0);
    assert!(state.charge(0, &charge(1 << 61)).allowed);
    let taken = (1 << 61) - (1 << 32);
    assert!(state.charge(2 * SECOND - 1, &charge(taken)).allowed);
    let bytes = state.to_bytes();
    assert_eq!(limit.read(0, &bytes).unwrap().to_bytes(), bytes);
}

#[test]
fn a_state_expires_at_its_reset_and_after_at_most_two_windows() {
    for algorithm in ALL {
        let limit = limit(algorithm, 10);
        let mut state = limit.unused(0);
        assert_eq!(state.expires_after(0), Duration::ZERO, "{algorithm:?}");
        let reset_after = state.charge(0, &charge(10)).reset_after;
        assert_eq!(state.expires_after(0), reset_after, "{algorithm:?}");
        // Another instance wrote the state, with a clock that is an hour ahead.
        let mut ahead = limit.unused(0);
        ahead.charge(3600 * SECOND, &charge(10));
        assert!(
            ahead.expires_after(0) <= Duration::from_secs(120),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_set_is_charged_all_or_nothing() {
    let limits = [
        limit(Algorithm::TokenBucket, 5),
        limit(Algorithm::SlidingWindowLog, 1),
    ];
    let mut states = limits.map(|limit| limit.unused(0));
    let mut out = [Decision::default(); 2];
    assert!(charge_all(
        &mut states,
        0,
        &[charge(1), charge(1)],
        &mut out
    ));
    assert_eq!(
        out.map(|one| (one.granted, one.remaining)),
        [(1, 4), (1, 0)]
    );
    let before = states.each_ref().map(|state| state.to_bytes());
    assert!(!charge_all(
        &mut states,
        0,
        &[charge(2), charge(1)],
        &mut out
    ));
    assert_eq!(
        out.map(|one| (one.allowed, one.granted, one.remaining)),
        [(true, 0, 4), (false, 0, 0)]
    );
    assert_eq!(states.each_ref().map(|state| state.to_bytes()), before);
}

/// The client's `retry_after` follows the new quota, so it must apply even if another policy rejects.
#[test]
fn a_rejected_set_still_applies_the_quotas_of_its_charges() {
    let limits = [
        limit(Algorithm::TokenBucket, 10),
        limit(Algorithm::TokenBucket, 1),
    ];
    let mut states = limits.map(|limit| limit.unused(0));
    let mut out = [Decision::default(); 2];
    charge_all(&mut states, 0, &[charge(8), charge(1)], &mut out);
    let fast = charge(1).quota(Quota::per_second(10));
    assert!(!charge_all(&mut states, 0, &[fast, charge(1)], &mut out));
    assert_eq!(states[0].decide(0, &charge(0)).remaining, 2);
    assert_eq!(states[0].decide(SECOND, &charge(0)).remaining, 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Others can write to the backend, so the bytes can be anything.
    #[test]
    fn any_bytes_can_be_read_and_charged(
        (algorithm, quota) in any_built(),
        words in prop::collection::vec((any::<u64>(), 0_u32..64), 0..12),
        tail in prop::collection::vec(any::<u8>(), 0..12),
        nanos: u64,
        (cost, delta) in any::<(u64, i64)>(),
    ) {
        let limit = Limit::new(algorithm, quota).unwrap();
        let mut bytes = limit.unused(0).to_bytes();
        bytes[1] = u8::try_from(words.len()).unwrap();
        for (word, shift) in words {
            super::super::put(&mut bytes, word >> shift);
        }
        bytes.extend_from_slice(&tail[..tail.len().saturating_sub(6)]);
        if let Some(mut state) = limit.read(nanos, &bytes) {
            for cost in [cost, 1] {
                state.charge(nanos, &charge(cost).up_to(u64::MAX));
                state.settle(nanos, &charge(cost), delta);
                let _ = state.expires_after(nanos);
            }
            prop_assert!(limit.read(nanos, &state.to_bytes()).is_some());
        }
    }
}
