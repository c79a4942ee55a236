use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, RedisResult,
    ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::net::TcpStream;
use tower_dist_ratelimit::backend::{
    BoxFuture,
    toolkit::{ConnectError, Connector},
};

use super::target::Address;
#[cfg(feature = "tls")]
use super::tls::Tls;

/// Idle time after which the kernel probes the connection.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The lowest supported major version of Redis. Version 6 introduced access control lists, and `KEEPTTL` of `SET`,
/// which a script uses.
const LEAST: u32 = 6;

/// A connection that sends commands.
pub(super) trait CommandSender: Send + Sync {
    /// Sends a command. If `asking` is set, sends an [`ASKING`](https://redis.io/docs/latest/commands/asking/) before
    /// it.
    fn send(&self, command: Cmd, asking: bool) -> BoxFuture<'static, RedisResult<Value>>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> CommandSender for C {
    fn send(&self, command: Cmd, asking: bool) -> BoxFuture<'static, RedisResult<Value>> {
        let mut connection = self.clone();
        Box::pin(async move {
            if !asking {
                return connection
                    .req_packed_command(&command)
                    .await?
                    .extract_error();
            }
            let mut both = redis::Pipeline::new();
            both.cmd("ASKING").add_command(command);
            let mut answers = connection.req_packed_commands(&both, 0, 2).await?;
            answers.pop().unwrap_or(Value::Nil).extract_error()
        })
    }
}

/// A connection and its driver, which moves the bytes. The driver has to be polled, and ends with the connection. A
/// connection that the user opened brings its own driver, so `driver` is then a future that never ends.
pub(super) struct Connection {
    pub(super) commands: Arc<dyn CommandSender>,
    pub(super) driver: BoxFuture<'static, ()>,
}

impl Connection {
    /// Sends one command, and closes the connection.
    pub(super) async fn ask(mut self, to: &Address, command: Cmd) -> Result<Value, ConnectError> {
        let answer = self.commands.send(command, false);
        tokio::select! {
            answer = answer => answer.map_err(|error| refused(to, error)),
            () = &mut self.driver => Err(ConnectError::new(to, "closed the connection")),
        }
    }
}

/// The settings of a connection, apart from its address.
#[derive(Clone)]
pub(super) struct Dialer {
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Tls>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: i64,
}

impl Dialer {
    /// Returns a function that connects to this address.
    pub(super) fn to(&self, address: &Address) -> Connector<Connection> {
        let (dialer, address) = (self.clone(), address.clone());
        Arc::new(move || dialer.clone().dial(address.clone()))
    }

    /// Connects, authenticates, and checks that the server is suitable.
    ///
    /// The future is boxed: its code is large, and would otherwise be part of each caller.
    pub(super) fn dial(
        self,
        address: Address,
    ) -> BoxFuture<'static, Result<Connection, ConnectError>> {
        Box::pin(async move {
            let mut connection = self.connect(address.clone()).await?;
            let commands = Arc::clone(&connection.commands);
            tokio::select! {
                () = &mut connection.driver => Err(ConnectError::new(&address, "closed the connection")),
                fit = check_server(&address, &*commands) => fit.map(|()| connection),
            }
        })
    }

    /// Connects and authenticates. The future is boxed: its code would otherwise be part of each caller.
    pub(super) fn connect(
        self,
        address: Address,
    ) -> BoxFuture<'static, Result<Connection, ConnectError>> {
        Box::pin(async move { self.open(&address).await })
    }

    async fn open(&self, address: &Address) -> Result<Connection, ConnectError> {
        let unreachable = |error| ConnectError::because(address, "cannot be reached", error);
        let stream = TcpStream::connect((address.host.as_str(), address.port))
            .await
            .map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
        socket2::SockRef::from(&stream)
            .set_tcp_keepalive(&keepalive)
            .map_err(unreachable)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let stream = tls.connect(address, stream).await?;
            return self.greet(address, stream).await;
        }
        self.greet(address, stream).await
    }

    async fn greet<S>(&self, address: &Address, stream: S) -> Result<Connection, ConnectError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let mut who = RedisConnectionInfo::default().set_db(self.db);
        if let Some(user) = &self.user {
            // The `redis` crate ignores a user name without a password, so this sets an empty password.
            who = who.set_username(user).set_password("");
        }
        if let Some(password) = &self.password {
            who = who.set_password(password);
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (connection, driver) = MultiplexedConnection::new_with_config(&who, stream, config)
            .await
            .map_err(|error| refused(address, error))?;
        Ok(Connection {
            commands: Arc::new(connection),
            driver: Box::pin(driver),
        })
    }
}

const BAD_USER: &str = "does not accept this user or password";

pub(super) fn refused(address: &Address, error: RedisError) -> ConnectError {
    let problem = match error.kind() {
        _ if matches!(error.code(), Some("WRONGPASS" | "NOAUTH")) => BAD_USER,
        ErrorKind::AuthenticationFailed => BAD_USER,
        // This includes a server with too many connections, whose error message is often lost.
        _ if error.is_io_error() => "closed the connection",
        // The parser's message has several lines and no further information.
        ErrorKind::Parse => return ConnectError::new(address, "does not speak Redis's protocol"),
        _ => "answers with an error",
    };
    ConnectError::because(address, problem, error)
}

/// Returns the text of a string value. Returns `None` for another value, and for text that is not UTF-8.
pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// Checks that a server is no sentinel, is recent enough, is no read-only replica, and lets this user run scripts.
/// Without permission for `INFO`, only the last of these is checked.
async fn check_server(address: &Address, commands: &dyn CommandSender) -> Result<(), ConnectError> {
    let mut info = redis::cmd("INFO");
    match commands.send(info.take(), false).await {
        Ok(answer) => {
            check_info(address, &text(answer).unwrap_or_default())?;
        }
        // The user is not allowed to call INFO. The script below still checks that the user can run scripts.
        Err(error) if error.code() == Some("NOPERM") => {}
        Err(error) => return Err(refused(address, error)),
    }
    let mut script = redis::cmd("EVAL");
    script.arg("return redis.call('TIME')").arg(0);
    let problem = "does not run scripts for this user";
    match commands.send(script, false).await {
        Ok(Value::Array(_)) => Ok(()),
        Ok(_) => Err(ConnectError::new(address, problem)),
        Err(error) => Err(ConnectError::because(address, problem, error)),
    }
}

fn check_info(address: &Address, info: &str) -> Result<(), ConnectError> {
    let says = |name: &str| {
        info.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    // The first name is Redis's, the second Valkey's.
    let mode = says("redis_mode").or_else(|| says("server_mode"));
    if mode == Some("sentinel") {
        let problem = "is a sentinel, which needs a URL of redis-sentinel://";
        return Err(ConnectError::new(address, problem));
    }
    if let Some(version) = says("redis_version")
        && let Some((major, _)) = version.split_once('.')
        && major.parse().is_ok_and(|major: u32| major < LEAST)
    {
        let problem = format!("is Redis {version}, but must be at least {LEAST}");
        return Err(ConnectError::new(address, problem));
    }
    if says("role") == Some("slave") && says("slave_read_only") == Some("1") {
        return Err(ConnectError::new(address, "is a read-only replica"));
    }
    Ok(())
}

/// Returns whether the error says that the server rejects writes that another server may accept. Either the server is a
/// replica, or it has too few replicas, perhaps because one was promoted.
pub(super) fn takes_no_writes(error: &RedisError) -> bool {
    // If a script fails, older servers put the error code somewhere in the text of the error.
    let says = |code| error.detail().is_some_and(|detail| detail.contains(code));
    matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    ) || error.code() == Some("NOREPLICAS")
        || says("READONLY ")
        || says("NOREPLICAS ")
}
