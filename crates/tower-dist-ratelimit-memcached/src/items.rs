use std::{sync::Arc, time::Duration};

use tower_dist_ratelimit::backend::{
    BackendError, CompareAndSwap,
    toolkit::{Tag, tag as tag_of, wall_clock},
};

use super::{
    clock::{SLACK, unix},
    key::server,
    link::Link,
    reply::{Code, Meta},
    request::{Command, Ttl},
};

/// The link to each server, with the hash of the server's name.
pub(super) type Servers = Arc<[(u64, Link)]>;

/// Memcached as a store for [`CasBackend`](tower_dist_ratelimit::backend::CasBackend).
pub(super) struct Items {
    pub(super) servers: Servers,
    pub(super) prefix: Arc<str>,
}

impl Items {
    /// Returns the tag of a store key, which selects the server. The key is `prefix:layout:tag:name`.
    fn tag(&self, key: &[u8]) -> Tag {
        let parts = key.get(self.prefix.len() + 1..).unwrap_or_default();
        let tag = parts.split(|&byte| byte == b':').nth(1);
        let tag = tag.and_then(|tag| tag.try_into().ok());
        tag.unwrap_or_else(|| tag_of(key))
    }

    async fn ask(&self, key: &[u8], command: Command) -> Result<Meta, BackendError> {
        let link = server(&self.servers, &self.tag(key));
        link.send(command, None)?.await
    }
}

impl CompareAndSwap for Items {
    /// The item's CAS number, which the server changes with every write.
    type Version = u64;

    async fn load(&self, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>, BackendError> {
        let meta = self.ask(key, Command::new("mg", key).end(" v c")).await?;
        // The connection skips a value that is too long. Such a value counts as empty, and the next write replaces it.
        let value = meta.value.map(|value| value.into_vec());
        let version = meta.cas.filter(|_| meta.code == Code::Value);
        Ok(version.map(|version| (value.unwrap_or_default(), version)))
    }

    async fn swap(
        &self,
        key: &[u8],
        expected: Option<u64>,
        value: &[u8],
        ttl: Duration,
    ) -> Result<bool, BackendError> {
        let seconds = ttl.as_secs().saturating_add(1 + SLACK);
        let command = Command::set(key, value.len());
        let command = command.ttl(" T", Ttl::seconds(seconds, unix(wall_clock())));
        let command = match expected {
            Some(version) => command.flag(" C", version).value("", value),
            None => command.value(" ME", value),
        };
        match self.ask(key, command).await?.code {
            Code::Done => Ok(true),
            Code::Exists | Code::NotFound | Code::NotStored => Ok(false),
            code => Err(BackendError::new(format!(
                "the answer {code:?} does not fit a write"
            ))),
        }
    }
}
