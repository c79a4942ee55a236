//! Real servers for tests, on free ports of this machine. A test starts and stops its own servers; they write nothing
//! to the disk that outlives the test.
//!
//! Dropping a handle kills its server by process id, also when a test panics. On Linux the server also dies with the
//! test process.

mod cluster;
mod memcached;
mod postgres;
mod process;
mod proxy;
mod redis;
mod resp;
mod sentinel;

pub use self::{
    cluster::{Cluster, free_port_of_a_node},
    memcached::Memcached,
    postgres::Postgres,
    process::{Server, free_port},
    proxy::Proxy,
    redis::{Redis, redis_server},
    resp::{Reply, Resp},
    sentinel::Sentinels,
};
