//! Concurrent readers of a recorded body start, read, stall and stop as the input chooses. The model of tower-attempt's
//! own tests predicts the frames that they see.
//!
//! Input: a byte for the source's size hint and the drop order, two bytes for the limit, a byte for the number of
//! source steps, two bytes for each step, then a byte for each action.
#![no_main]

#[path = "../../crates/tower-attempt/tests/replay/model.rs"]
mod model;
#[path = "../../crates/tower-attempt/tests/replay/run.rs"]
mod run;
#[path = "../../crates/tower-attempt/tests/replay/saved.rs"]
#[expect(dead_code, reason = "used by tests")]
mod saved;
#[path = "../../crates/tower-attempt/tests/replay/script.rs"]
#[expect(dead_code, reason = "used by tests")]
mod script;

use libfuzzer_sys::fuzz_target;

use self::run::{Act, Run};
use self::script::{Manners, Step};

const MAX_STEPS: usize = 24;

fuzz_target!(|data: &[u8]| {
    let [flags, limit_high, limit_low, count, rest @ ..] = data else {
        return;
    };
    let limit = match u16::from_be_bytes([*limit_high, *limit_low]) {
        u16::MAX => usize::MAX,
        limit => usize::from(limit % 4096),
    };
    let steps = 2 * (usize::from(*count) % MAX_STEPS);
    let (steps, acts) = rest.split_at(steps.min(rest.len()));
    let mut steps: Vec<Step> = steps
        .chunks_exact(2)
        .map(|step| self::step([step[0], step[1]]))
        .collect();
    if flags & 4 != 0 {
        steps.push(Step::Error);
    }
    let manners = Manners {
        knows_size: flags & 1 != 0,
        knows_end: flags & 2 != 0,
    };
    let mut run = Run::new(steps, manners, limit);
    acts.iter().for_each(|act| run.act(&self::act(*act)));
    run.end(flags & 8 != 0);
});

/// Mostly data.
fn step([kind, length]: [u8; 2]) -> Step {
    match kind {
        0..=159 => Step::Data(usize::from(kind % 4) * 256 + usize::from(length)),
        160..=175 => Step::Trailers,
        176..=207 => Step::WakeInline,
        208..=255 => Step::Wait,
    }
}

/// Mostly reads.
fn act(byte: u8) -> Act {
    let reader = usize::from(byte % 4);
    match byte {
        0..=127 => Act::Poll {
            reader,
            fresh_waker: byte & 4 != 0,
        },
        128..=159 => Act::Join {
            retry: byte & 1 != 0,
        },
        160..=199 => Act::Fire { thread: false },
        200..=215 => Act::Ripen,
        216..=219 => Act::DropSaved,
        220..=239 => Act::Drop { reader },
        240..=255 => Act::Stall { reader },
    }
}
