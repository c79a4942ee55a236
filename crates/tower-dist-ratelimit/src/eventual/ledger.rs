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

/// Keys of one policy that are exchanged about at the same time. Others are asked for exactly.
const MAX_KEYS: usize = 10_000;

/// In bytes, since keys are kept here as they are: with this, 20 MB for each policy. Whoever makes up longer ones is decided
/// exactly.
const LONGEST_KEY: usize = 1_000;

/// What this process believes the store to hold, and what it has not told it yet.
pub(crate) struct Ledger {
    pub(super) memory: Memory,
    books: Vec<Book>,
}

/// One policy's.
struct Book {
    /// As the store knows it, and as the memory does.
    id: PolicyId,
    own: PolicyId,
    quota: Quota,
    /// Its tokens come evenly.
    evenly: bool,
    accounts: Mutex<HashMap<Box<[u8]>, Account>>,
}

/// One key's.
#[derive(Default)]
struct Account {
    unsent: u64,
    /// Of the last charge, if it was not the policy's.
    quota: Option<Quota>,
    /// Whether it was asked about since the last exchange.
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

    /// The same, for policies that the store knows by these ids.
    pub(crate) fn of(mut self, ids: &[PolicyId]) -> Self {
        for (book, &id) in self.books.iter_mut().zip(ids) {
            book.id = id;
        }
        self
    }

    /// The same charges to the memory, with the numbers of their policies. None if one of their keys has no room.
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

    /// Notes that so many tokens were charged. Whether nobody exchanges about the key yet.
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

    /// Whether there is something to exchange about; if not, the key is forgotten.
    pub(super) fn goes_on(&self, number: usize, key: &[u8]) -> bool {
        let mut accounts = self.books[number].accounts();
        let goes_on = accounts.get(key).is_some_and(|account| account.asked);
        if !goes_on {
            accounts.remove(key);
        }
        goes_on
    }

    /// Nobody exchanges about the key any more, though there may be something.
    pub(super) fn forget(&self, number: usize, key: &[u8]) {
        self.books[number].accounts().remove(key);
    }

    /// What was used since the last exchange, which is this one, and the quota it is used by.
    pub(super) fn take(&self, number: usize, key: &[u8]) -> (u64, Option<Quota>) {
        let mut accounts = self.books[number].accounts();
        let account = accounts.get_mut(key).map(std::mem::take);
        account.map_or((0, None), |account| (account.unsent, account.quota))
    }

    /// Changes what is still to be said about a charge, and says what of it has been said already.
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

    /// It was not said after all.
    pub(super) fn put_back(&self, number: usize, charge: &Charge<'_>) {
        self.used(number, charge, charge.cost);
    }

    /// Believes the store.
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
        // How much more the store has seen used than this process believes. Debts show in the time alone.
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
            // It is done when it is asked for.
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

/// The tokens that a bucket has to gain until it is full, rounded up.
fn used(decision: &Decision, quota: Quota) -> i128 {
    let nanos = u128::from(saturating_nanos(decision.reset_after));
    let window = u128::from(saturating_nanos(quota.window())).max(1);
    let tokens = (nanos * u128::from(quota.limit())).div_ceil(window);
    i128::try_from(tokens).unwrap_or(i128::MAX / 2)
}
