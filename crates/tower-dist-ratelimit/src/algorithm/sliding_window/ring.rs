use smallvec::{SmallVec, smallvec};

/// What was taken in the latest sub-windows: in `n` of them and the one before.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// The number of the newest sub-window.
    newest: u64,
    /// By the number's remainder; empty in a ring that nobody has used. Two are kept inline: that is the two windows.
    counts: SmallVec<[u64; 2]>,
}

/// A ring as it stands at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    ring: &'a Ring,
    /// n.
    sub_windows: u64,
    /// The number of the present sub-window.
    number: u64,
    /// Nanoseconds of it that have passed.
    pub(super) passed: u64,
    /// Nanoseconds until it begins, when the clock has jumped back.
    pub(super) behind: u64,
}

impl Ring {
    /// The count of the sub-window of this number, or of the newest if that is later.
    pub(super) fn now(&mut self, sub_windows: u64, number: u64) -> &mut u64 {
        let len = sub_windows + 1;
        if self.counts.is_empty() {
            self.counts = smallvec![0; index(len)];
            self.newest = number;
        }
        let passed = number.saturating_sub(self.newest).min(len);
        self.newest = self.newest.max(number);
        for age in 0..passed {
            // Those that came since then, and of these no more than there are places for.
            let place = place(self.newest - age, len);
            self.counts[place] = 0;
        }
        &mut self.counts[place(self.newest, len)]
    }

    /// Takes tokens out of the counts, the newest first.
    pub(super) fn give_back(&mut self, mut tokens: u64) {
        let len = self.counts.len() as u64;
        for age in 0..len.min(self.newest + 1) {
            let place = place(self.newest - age, len);
            let back = tokens.min(self.counts[place]);
            self.counts[place] -= back;
            tokens -= back;
        }
    }

    /// The count of a sub-window; zero if it is not one of the latest.
    fn count(&self, number: u64) -> u64 {
        let len = self.counts.len() as u64;
        if number > self.newest || number + len <= self.newest {
            return 0;
        }
        self.counts[place(number, len)]
    }
}

impl Ring {
    /// Of which the newest has this number, and each the count that is said of its age.
    pub(super) fn of(newest: u64, sub_windows: u64, count: impl Fn(u64) -> u64) -> Self {
        let len = sub_windows + 1;
        let mut counts = smallvec![0; index(len)];
        for age in 0..len.min(newest + 1) {
            counts[place(newest - age, len)] = count(age);
        }
        Self { newest, counts }
    }
}

impl Ring {
    /// As [`words`](Self::words) has it.
    pub(super) fn restored(newest: u64, counts: &[u64]) -> Self {
        let counts = counts.into();
        Self { newest, counts }
    }

    pub(super) fn words(&self) -> super::super::Words {
        if self.counts.is_empty() {
            return super::super::Words::new();
        }
        let newest = std::iter::once(self.newest);
        newest.chain(self.counts.iter().copied()).collect()
    }
}

impl<'a> View<'a> {
    pub(super) fn new(ring: &'a Ring, sub_windows: u64, length: u64, nanos: u64) -> Self {
        let number = nanos / length;
        let early = ring.newest > number;
        Self {
            ring,
            sub_windows,
            number: if early { ring.newest } else { number },
            passed: if early { 0 } else { nanos % length },
            behind: if early {
                ring.newest * length - nanos
            } else {
                0
            },
        }
    }

    /// The beginning of the next sub-window.
    pub(super) fn next(self) -> Self {
        Self {
            number: self.number + 1,
            passed: 0,
            ..self
        }
    }

    /// The count of the sub-window that is this much older than the present one.
    fn count(&self, age: u64) -> u64 {
        self.number
            .checked_sub(age)
            .map_or(0, |number| self.ring.count(number))
    }

    /// The count of the last `n`, the present one included.
    pub(super) fn within(&self) -> u64 {
        (0..self.sub_windows).map(|age| self.count(age)).sum()
    }

    /// The count of the one before those.
    pub(super) fn before(&self) -> u64 {
        self.count(self.sub_windows)
    }

    pub(super) fn total(&self) -> u64 {
        self.within() + self.before()
    }

    /// The age of the newest that has a count.
    pub(super) fn newest(&self) -> Option<u64> {
        (0..=self.sub_windows).find(|&age| self.count(age) > 0)
    }
}

fn place(number: u64, len: u64) -> usize {
    index(number % len)
}

fn index(small: u64) -> usize {
    usize::try_from(small).unwrap_or(usize::MAX)
}
