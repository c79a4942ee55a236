use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;
use tokio::time::timeout;
use tower_dist_ratelimit::backend::toolkit::{ConnectError, connect_within};

use super::{
    connection::{Connection, Dialer, text},
    target::Address,
};

/// Maximum time until a sentinel answers. If there is no connection to a primary after this time, the next sentinel is
/// queried concurrently.
const PATIENCE: Duration = Duration::from_secs(1);

/// A primary that sentinels know by name.
#[derive(Clone)]
pub(super) struct MonitoredPrimary {
    pub(super) name: String,
    pub(super) sentinels: Vec<Address>,
    /// The settings for connections to the primary.
    pub(super) dialer: Dialer,
    /// The settings for connections to the sentinels, which have users of their own and no databases.
    pub(super) sentinel_dialer: Dialer,
}

impl MonitoredPrimary {
    /// Connects to the first reachable and suitable server that a sentinel names as the primary.
    ///
    /// A sentinel that is isolated from the others can name an old primary. So if a sentinel, or the server that it
    /// names, fails or is slow, the next sentinel is queried.
    pub(super) async fn dial(&self) -> Result<Connection, ConnectError> {
        let mut why = ConnectError::new(&self.name, "has no sentinels");
        let mut sentinels = self.sentinels.iter();
        let mut attempts = FuturesUnordered::new();
        loop {
            let next = sentinels.next();
            attempts.extend(next.map(|sentinel| self.dial_by(sentinel)));
            let ended = match next {
                Some(_) => timeout(PATIENCE, attempts.next()).await,
                None => Ok(attempts.next().await),
            };
            match ended {
                Ok(Some(Ok(connection))) => return Ok(connection),
                Ok(Some(Err(error))) => why = error,
                Ok(None) => return Err(why),
                Err(_) => {}
            }
        }
    }

    async fn dial_by(&self, sentinel: &Address) -> Result<Connection, ConnectError> {
        let primary = connect_within(PATIENCE, sentinel, self.ask(sentinel)).await?;
        self.dialer.clone().dial(primary).await
    }

    async fn ask(&self, sentinel: &Address) -> Result<Address, ConnectError> {
        let connection = self
            .sentinel_dialer
            .clone()
            .connect(sentinel.clone())
            .await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let answer = connection.ask(sentinel, command).await?;
        let address = match answer {
            Value::Array(parts) => address(parts),
            _ => None,
        };
        address.ok_or_else(|| {
            let problem = format!("does not know a primary named {:?}", self.name);
            ConnectError::new(sentinel, problem)
        })
    }
}

fn address(parts: Vec<Value>) -> Option<Address> {
    let mut parts = parts.into_iter().map(text);
    Some(Address {
        host: parts.next()??,
        port: parts.next()??.parse().ok()?,
    })
}
