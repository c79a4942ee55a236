use std::time::Duration;

/// Failures in a row that are no accident.
const ROW: u64 = 5;

/// The fewest decisions whose share of failures says something.
const FEWEST: u64 = 10;

/// Half of the second that shares are looked at for. The last second is this half and the one before.
const HALF: Duration = Duration::from_millis(500);

/// How a store has done lately, in 63 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Failures since the last answer, below [`ROW`].
    row: u64,
    /// The number of the half that `now` is about. It comes round every 97 days; then what is older than that is taken for new.
    half: u64,
    now: Tally,
    before: Tally,
}

/// Decisions of one half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    failed: u64,
    all: u64,
}

const ROW_BITS: u32 = 3;
const HALF_BITS: u32 = 24;
const TALLY_BITS: u32 = 9;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
const MOST: u64 = (1 << TALLY_BITS) - 1;

/// The bits of a packed record.
pub(super) const BITS: u32 = ROW_BITS + HALF_BITS + 4 * TALLY_BITS;

impl Tally {
    /// When it is full both numbers are halved, which leaves the share: above a thousand decisions a second the later ones count for
    /// more.
    fn count(self, failed: bool) -> Self {
        let full = u32::from(self.all == MOST);
        Self {
            failed: (self.failed >> full) + u64::from(failed),
            all: (self.all >> full) + 1,
        }
    }
}

impl Record {
    /// The record with one decision more, made `now`.
    pub(super) fn count(self, failed: bool, now: Duration) -> Self {
        let mut next = self.at(now);
        next.now = next.now.count(failed);
        next.row = if failed { self.row + 1 } else { 0 };
        next
    }

    /// Whether a store with this record had better be left alone.
    pub(super) fn is_bad(self) -> bool {
        let (failed, all) = (self.failed(), self.now.all + self.before.all);
        self.row >= ROW || (all >= FEWEST && 2 * failed >= all)
    }

    /// Whether nothing of it can ever count against the store.
    pub(super) fn is_clean(self) -> bool {
        self.row == 0 && self.failed() == 0
    }

    fn failed(self) -> u64 {
        self.now.failed + self.before.failed
    }

    /// Without what is longer ago than the half before this one.
    fn at(self, now: Duration) -> Self {
        let half = u64::try_from(now.as_nanos() / HALF.as_nanos()).unwrap_or(u64::MAX) & HALF_MASK;
        match half.wrapping_sub(self.half) & HALF_MASK {
            // A thread that has looked at the clock and is overtaken comes from the half before.
            0 | HALF_MASK => self,
            1 => Self {
                half,
                now: Tally::default(),
                before: self.now,
                ..self
            },
            _ => Self {
                half,
                now: Tally::default(),
                before: Tally::default(),
                ..self
            },
        }
    }

    pub(super) fn pack(self) -> u64 {
        let Self {
            row,
            half,
            now,
            before,
        } = self;
        let tallies = [now.failed, now.all, before.failed, before.all];
        let head = (row << HALF_BITS) | half;
        tallies
            .into_iter()
            .fold(head, |bits, count| (bits << TALLY_BITS) | count)
    }

    pub(super) fn unpack(mut bits: u64) -> Self {
        let mut take = |width: u32| {
            let taken = bits & ((1 << width) - 1);
            bits >>= width;
            taken
        };
        let mut tally = || {
            let all = take(TALLY_BITS);
            let failed = take(TALLY_BITS);
            Tally { failed, all }
        };
        let (before, now) = (tally(), tally());
        let (half, row) = (take(HALF_BITS), take(ROW_BITS));
        Self {
            row,
            half,
            now,
            before,
        }
    }
}
