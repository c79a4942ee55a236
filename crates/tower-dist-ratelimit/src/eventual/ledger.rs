use std::{
    collections::HashMap,
    slice,
    sync::{Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

use crate::{
    BuildError, Decision, Policy, Quota,
    algorithm::saturating_nanos,
    backend::{Answer, Backend, Charge, Memory, PolicyId},
    register,
};

/// Maximum keys of one policy with an exchange task. Other keys are decided exactly.
const MAX_KEYS: usize = 10_000;

/// Longest key in bytes. Keys are stored twice, so they take at most 20 MB per policy. Longer keys are
/// decided exactly.
const LONGEST_KEY: usize = 1_000;

/// This process's copy of the backend's counts, and its unsent usage.
pub(crate) struct Ledger {
    pub(super) memory: Memory,
    books: Vec<Book>,
}

/// The keys of one policy.
struct Book {
    /// The policy's id in the backend (`id`) and in the local memory (`own`).
    id: PolicyId,
    own: PolicyId,
    quota: Quota,
    /// Whether tokens arrive evenly, as in a bucket.
    evenly: bool,
    accounts: Mutex<HashMap<Box<[u8]>, Account>>,
}

/// The unsent usage of one key.
#[derive(Default)]
struct Account {
    unsent: u64,
    /// Dynamic quota of the last charge.
    quota: Option<Quota>,
    /// Whether a request used the key since the last exchange.
    asked: bool,
}

impl Ledger {
    pub(crate) fn new(policies: &[Policy]) -> Result<Self, BuildError> {
        let memory = Memory::default();
        let own = register::register(&memory, policies)?;
        let books = policies.iter().zip(own);
        let books = books.map(|(policy, own)| Book {
            id: own,
            own,
            quota: policy.quota(),
            evenly: policy.algorithm().is_bucket(),
            accounts: Mutex::default(),
        });
        Ok(Self {
            memory,
            books: books.collect(),
        })
    }

    /// Sets the ids by which the backend knows the policies.
    pub(crate) fn of(mut self, ids: &[PolicyId]) -> Self {
        for (book, &id) in self.books.iter_mut().zip(ids) {
            book.id = id;
        }
        self
    }

    /// Converts charges to the local memory's policy ids, and adds the index of each policy. Returns `None` if
    /// a key is too long, or new while its policy has the maximum number of keys.
    pub(super) fn own<'a>(
        &self,
        charges: &[Charge<'a>],
    ) -> Option<SmallVec<[(usize, Charge<'a>); 2]>> {
        charges
            .iter()
            .map(|charge| {
                let number = self
                    .books
                    .iter()
                    .position(|book| book.id == charge.policy)?;
                let book = &self.books[number];
                let accounts = book.accounts();
                let room = charge.key.len() <= LONGEST_KEY
                    && (accounts.len() < MAX_KEYS || accounts.contains_key(charge.key));
                let own = Charge {
                    policy: book.own,
                    up_to: charge.cost,
                    ..*charge
                };
                room.then_some((number, own))
            })
            .collect()
    }

    /// Adds tokens to the unsent usage of a key. Returns whether the key is new, and so has no task yet.
    pub(super) fn used(&self, number: usize, charge: &Charge<'_>, tokens: u64) -> bool {
        let mut accounts = self.books[number].accounts();
        if let Some(account) = accounts.get_mut(charge.key) {
            account.unsent = account.unsent.saturating_add(tokens);
            account.quota = charge.quota;
            account.asked = true;
            return false;
        }
        let account = Account {
            unsent: tokens,
            quota: charge.quota,
            asked: true,
        };
        accounts.insert(charge.key.into(), account);
        true
    }

    /// Returns whether a request used the key since the last exchange. Removes an idle key.
    pub(super) fn goes_on(&self, number: usize, key: &[u8]) -> bool {
        let mut accounts = self.books[number].accounts();
        let goes_on = accounts.get(key).is_some_and(|account| account.asked);
        if !goes_on {
            accounts.remove(key);
        }
        goes_on
    }

    /// Removes a key whose task ended early. Its unsent usage is lost.
    pub(super) fn forget(&self, number: usize, key: &[u8]) {
        self.books[number].accounts().remove(key);
    }

    /// Takes the unsent usage of a key and its quota. The next interval starts here.
    pub(super) fn take(&self, number: usize, key: &[u8]) -> (u64, Option<Quota>) {
        let mut accounts = self.books[number].accounts();
        let account = accounts.get_mut(key).map(std::mem::take);
        account.map_or((0, None), |account| (account.unsent, account.quota))
    }

    /// Applies a settlement to the unsent usage. Returns the part that the backend has to settle.
    pub(super) fn correct(&self, number: usize, charge: Charge<'_>, delta: i64) -> i64 {
        let mut accounts = self.books[number].accounts();
        let Some(account) = accounts.get_mut(charge.key) else {
            return delta;
        };
        if delta >= 0 {
            account.unsent = account.unsent.saturating_add(delta.unsigned_abs());
            account.quota = charge.quota;
            account.asked = true;
            return 0;
        }
        let refund = delta.unsigned_abs().min(charge.cost);
        let unsaid = refund.min(account.unsent);
        account.unsent -= unsaid;
        i64::try_from(refund - unsaid).map_or(i64::MIN, |rest| -rest)
    }

    /// Restores usage that the backend did not receive.
    pub(super) fn put_back(&self, number: usize, charge: &Charge<'_>) {
        self.used(number, charge, charge.cost);
    }

    /// Sets the local count to the backend's count plus the unsent usage.
    pub(super) fn adopt(&self, number: usize, look: Charge<'_>, store: &Decision) {
        let book = &self.books[number];
        let accounts = book.accounts();
        let unsent = accounts.get(look.key).map_or(0, |account| account.unsent);
        let own = Charge {
            policy: book.own,
            ..look
        };
        let mut here = Decision::default();
        let Answer::Done(_) = self
            .memory
            .acquire(slice::from_ref(&own), slice::from_mut(&mut here))
        else {
            return;
        };
        // Tokens that the backend counts as used and the local memory does not. `remaining` is never
        // negative, so buckets compare the time until they are full, which includes debts.
        let more = if book.evenly {
            let quota = look.quota.unwrap_or(book.quota);
            used(store, quota) + i128::from(unsent) - used(&here, quota)
        } else {
            i128::from(here.remaining) + i128::from(unsent) - i128::from(store.remaining)
        };
        let delta = i64::try_from(more).unwrap_or(0);
        let own = Charge {
            cost: delta.unsigned_abs(),
            ..own
        };
        drop(self.memory.settle(&[own], delta));
    }

    pub(super) fn reset(&self, policy: PolicyId, key: &[u8]) {
        if let Some(book) = self.books.iter().find(|book| book.id == policy) {
            // The reset is complete when `reset` returns.
            drop(self.memory.reset(book.own, key));
            if let Some(account) = book.accounts().get_mut(key) {
                account.unsent = 0;
            }
        }
    }
}

impl Book {
    fn accounts(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the tokens that a bucket must gain to be full, rounded up.
fn used(decision: &Decision, quota: Quota) -> i128 {
    let nanos = u128::from(saturating_nanos(decision.reset_after));
    let window = u128::from(saturating_nanos(quota.window())).max(1);
    let tokens = (nanos * u128::from(quota.limit())).div_ceil(window);
    i128::try_from(tokens).unwrap_or(i128::MAX / 2)
}
