use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::{
    ConnectError,
    target::Address,
    wire::{Dialer, Wire},
};

/// How long one sentinel may take before the next is asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// A primary that sentinels know by name.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) name: String,
    pub(super) sentinels: Vec<Address>,
    /// For the server.
    pub(super) dialer: Dialer,
    /// For the sentinels, which have users of their own, and no databases.
    pub(super) asker: Dialer,
}

impl Watched {
    /// Connects to the server that is primary now: as the first sentinel that answers says, if the server agrees.
    pub(super) async fn dial(&self) -> Result<Wire, ConnectError> {
        let mut why = ConnectError::new(&self.name, "has no sentinels");
        for sentinel in &self.sentinels {
            let primary = timeout(PATIENCE, self.ask(sentinel))
                .await
                .unwrap_or_else(|_| {
                    let problem = format!("no answer within {PATIENCE:?}");
                    Err(ConnectError::new(sentinel, problem))
                });
            match primary {
                Ok(primary) => match self.dialer.dial(&primary).await {
                    Ok(wire) => return Ok(wire),
                    Err(error) => why = error,
                },
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn ask(&self, sentinel: &Address) -> Result<Address, ConnectError> {
        let wire = self.asker.connect(sentinel).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let answer = wire.ask(sentinel, command).await?;
        let unknown = || {
            let problem = format!("does not know a primary named {:?}", self.name);
            ConnectError::new(sentinel, problem)
        };
        let Value::Array(parts) = answer else {
            return Err(unknown());
        };
        let (host, port): (String, String) =
            redis::from_redis_value(Value::Array(parts)).map_err(|_| unknown())?;
        let port = port.parse().map_err(|_| unknown())?;
        Ok(Address { host, port })
    }
}
