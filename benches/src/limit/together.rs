use std::hint::spin_loop;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::thread;

use crate::measure::{Subject, time_of};

/// Two threads with half of the calls each, timed from the start of both to the end of both.
pub(super) fn together(name: &'static str, work: impl Fn(u32) + Sync + 'static) -> Subject {
    Subject::timing(name, move |calls| {
        let [here, go, done] = [const { AtomicBool::new(false) }; 3];
        let half = calls.div_ceil(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                here.store(true, Release);
                while !go.load(Acquire) {
                    spin_loop();
                }
                work(half);
                done.store(true, Release);
            });
            while !here.load(Acquire) {
                thread::yield_now();
            }
            time_of(|| {
                go.store(true, Release);
                work(half);
                while !done.load(Acquire) {
                    spin_loop();
                }
            })
        })
    })
}
