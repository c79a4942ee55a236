//! Parts for backends of other crates. The backends for Redis and Memcached are made of them.
//!
//! A backend registers its sets of policies in a [`Registry`], and keys its values by a [`tag`] of the caller's key. The
//! rest needs the feature `toolkit`: a backend over a network supervises its connection with [`Health`] and
//! [`Reconnect`], and spreads the charges of one request over several servers with [`Transactions`].

#[cfg(feature = "toolkit")]
mod address;
#[cfg(feature = "toolkit")]
mod clock;
#[cfg(feature = "toolkit")]
mod connect_error;
#[cfg(feature = "toolkit")]
mod health;
#[cfg(feature = "toolkit")]
mod keys;
#[cfg(feature = "toolkit")]
mod reconnect;
mod registry;
#[cfg(feature = "toolkit")]
mod tag;
#[cfg(feature = "toolkit")]
mod timeouts;
#[cfg(feature = "toolkit")]
mod transaction;

pub use registry::Registry;
#[cfg(feature = "toolkit")]
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
