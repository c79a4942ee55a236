//! Real servers, started for a test and stopped with it: on free ports of this machine, without a trace on its disk.
//!
//! A server is killed, by its own process id, when what stands for it here is dropped; also by a test that panics. It
//! also dies with the process that started it, where the kernel can see to that.

mod cluster;
mod memcached;
mod process;
mod proxy;
mod redis;
mod resp;
mod sentinel;

pub use self::{
    cluster::{Cluster, free_port_of_a_node},
    memcached::Memcached,
    process::{Server, free_port},
    proxy::Proxy,
    redis::{Redis, redis_server},
    resp::{Reply, Resp},
    sentinel::Sentinels,
};
