//! Parts for backends of other crates. The backends for Redis and Memcached are made of them.
//!
//! A backend over a network keys its values by a [`tag`] of the caller's key, supervises its connection with [`Health`]
//! and [`Reconnect`], and spreads the charges of one request over several servers with [`Transactions`]. Like every
//! backend, it registers its sets of policies in a [`Registry`](super::Registry).

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
    tag::{Tag, Tags, tag, tag_bits},
    timeouts::{Timeouts, connect_within},
    transaction::{PartAnswer, PendingVerdict, TransactionPart, Transactions},
};
