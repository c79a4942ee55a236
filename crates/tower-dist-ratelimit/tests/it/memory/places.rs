//! The places of keys, and the keys that lose their place.

use futures_util::FutureExt;

use super::*;

/// States of either kind: one number, and a list.
fn kinds() -> [Policy; 2] {
    let policy = || Policy::new("p", frozen(1));
    [policy(), policy().sliding_window_log()]
}

fn keys(count: u64) -> impl Iterator<Item = [u8; 8]> {
    (0..count).map(u64::to_le_bytes)
}

#[test]
fn a_reset_finds_a_key_wherever_it_is() {
    for policy in kinds() {
        let memory = Memory::with_capacity(1_000);
        let id = memory.register(&[policy]).unwrap()[0];
        for key in keys(1_000) {
            assert!(allowed(&memory, &[Charge::new(id, &key, 1)]));
        }
        for key in keys(1_000) {
            memory.reset(id, &key).now_or_never().unwrap().unwrap();
        }
        assert!(keys(1_000).all(|key| remaining(&memory, id, &key) == 1));
    }
}

#[test]
fn a_refund_to_an_unused_key_replaces_no_other_key() {
    for policy in kinds() {
        let memory = Memory::with_capacity(16);
        let id = memory.register(&[policy]).unwrap()[0];
        for key in keys(1_000) {
            allowed(&memory, &[Charge::new(id, &key, 1)]);
        }
        let limited = || {
            let limited = keys(1_000).filter(|key| remaining(&memory, id, key) == 0);
            limited.collect::<Vec<_>>()
        };
        let before = limited();
        assert!(before.len() >= 16);
        for key in keys(1_000).filter(|key| !before.contains(key)) {
            memory.settle(&[Charge::new(id, &key, 1)], -1);
        }
        assert_eq!(limited(), before);
    }
}
