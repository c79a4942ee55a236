//! Building blocks for backends in other crates. The backends for Redis and Memcached use them.
//!
//! A backend over a network uses a [`tag`] of the caller's key in the keys of its store. [`Health`] and [`Reconnect`]
//! supervise its connection, and [`Transactions`] spread the charges of one request over several servers. A
//! [`Registry`](super::Registry) holds its sets of policies.

mod address;
mod clock;
mod connect_error;
mod health;
mod keys;
mod reconnect;
mod tag;
mod timeouts;
mod transaction;

pub use {
    address::Address,
    clock::{EPOCH, SKEW, wall_clock},
    connect_error::ConnectError,
    health::Health,
    keys::Keys,
    reconnect::{Connector, Reconnect},
    tag::{Tag, tag, tag_bits},
    timeouts::{Timeouts, connect_within},
    transaction::{PartAnswer, PendingVerdict, TransactionPart, Transactions},
};
