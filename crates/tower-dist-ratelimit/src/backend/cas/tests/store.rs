use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::backend::{BackendError, CompareAndSwap};

/// A store in memory with the faults of its script.
#[derive(Clone, Default)]
pub(super) struct Store(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    values: HashMap<Vec<u8>, Value>,
    version: u64,
    script: Script,
    loads: u64,
    swaps: u64,
    last_ttl: Duration,
}

struct Value {
    bytes: Vec<u8>,
    version: u64,
    expires: Instant,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Script {
    /// Before each load and each swap.
    pub(super) delay: Duration,
    /// Number of swaps that fail before each swap that succeeds, as if another writer had won.
    pub(super) lost_races: u64,
    pub(super) loads: Fault,
    pub(super) swaps: Fault,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Fault {
    #[default]
    None,
    Error,
    /// The write is made, and its answer is an error.
    LostResponse,
    Hang,
    Panic,
}

impl Fault {
    async fn strike(self) -> Result<(), BackendError> {
        match self {
            Self::None | Self::LostResponse => Ok(()),
            Self::Error => Err(BackendError::new("out of order")),
            Self::Hang => std::future::pending().await,
            Self::Panic => panic!("a store that panics"),
        }
    }
}

impl Store {
    pub(super) fn new(script: Script) -> Self {
        let store = Self::default();
        store.follow(script);
        store
    }

    pub(super) fn follow(&self, script: Script) {
        self.lock().script = script;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub(super) fn loads(&self) -> u64 {
        self.lock().loads
    }

    pub(super) fn swaps(&self) -> u64 {
        self.lock().swaps
    }

    pub(super) fn len(&self) -> usize {
        self.lock().values.len()
    }

    pub(super) fn last_ttl(&self) -> Duration {
        self.lock().last_ttl
    }

    /// Writes the same bytes to all keys.
    pub(super) fn overwrite(&self, bytes: &[u8]) {
        let mut inner = self.lock();
        inner.version += 1;
        let version = inner.version;
        for value in inner.values.values_mut() {
            value.bytes = bytes.to_vec();
            value.version = version;
        }
    }
}

impl CompareAndSwap for Store {
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>, BackendError> {
        let script = self.lock().script;
        if !script.delay.is_zero() {
            sleep(script.delay).await;
        }
        script.loads.strike().await?;
        let mut inner = self.lock();
        inner.loads += 1;
        let value = inner.values.get(key);
        let value = value.filter(|value| value.expires > Instant::now());
        Ok(value.map(|value| (value.bytes.clone(), value.version)))
    }

    async fn swap(
        &self,
        key: &[u8],
        expected: Option<u64>,
        value: &[u8],
        ttl: Duration,
    ) -> Result<bool, BackendError> {
        let script = self.lock().script;
        if !script.delay.is_zero() {
            sleep(script.delay).await;
        }
        script.swaps.strike().await?;
        let mut inner = self.lock();
        inner.swaps += 1;
        let now = Instant::now();
        let present = inner.values.get(key).filter(|value| value.expires > now);
        let is_next = present.map(|value| value.version) == expected;
        if !is_next || !inner.swaps.is_multiple_of(script.lost_races + 1) {
            return Ok(false);
        }
        inner.version += 1;
        inner.last_ttl = ttl;
        let value = Value {
            bytes: value.to_vec(),
            version: inner.version,
            expires: now + ttl,
        };
        inner.values.insert(key.to_vec(), value);
        match script.swaps {
            Fault::LostResponse => Err(BackendError::new("the connection was lost")),
            _ => Ok(true),
        }
    }
}
