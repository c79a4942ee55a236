use std::time::Duration;

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower_dist_ratelimit::backend::toolkit::{Address, ConnectError};

use super::{
    reply::{Code, Meta, Parser, Reply},
    request::{Command, Ttl},
};

/// Idle time after which the kernel probes the connection.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Minimum version of the server: the first with stable meta commands.
const LEAST: [u64; 3] = [1, 6, 10];

/// Connects, and checks that the server supports the commands of this crate. The check writes the key `prefix:probe`.
pub(super) async fn dial(address: &Address, prefix: &str) -> Result<TcpStream, ConnectError> {
    let unreachable = |error| ConnectError::because(address, "cannot be reached", error);
    let mut stream = TcpStream::connect((address.host.as_str(), address.port))
        .await
        .map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
    socket2::SockRef::from(&stream)
        .set_tcp_keepalive(&keepalive)
        .map_err(unreachable)?;
    check(&mut stream)
        .await
        .map_err(|problem| ConnectError::new(address, problem))?;
    check_swapping(&mut stream, prefix)
        .await
        .map_err(|problem| ConnectError::new(address, problem))?;
    Ok(stream)
}

/// Checks the server's version.
async fn check(stream: &mut TcpStream) -> Result<(), String> {
    match ask(stream, b"version\r\n").await? {
        Reply::Version(version) if is_recent(&version) => Ok(()),
        Reply::Version(version) => {
            let [major, minor, patch] = LEAST;
            Err(format!(
                "is Memcached {version}, but must be at least {major}.{minor}.{patch}"
            ))
        }
        Reply::Error(error) => Err(format!("does not say its version: {error}")),
        Reply::Meta(_) => Err("does not speak Memcached's protocol".to_owned()),
    }
}

/// Checks that the server supports compare-and-swap, which its option `-C` turns off.
async fn check_swapping(stream: &mut TcpStream, prefix: &str) -> Result<(), String> {
    let mut request = BytesMut::new();
    let key = format!("{prefix}:probe");
    let set = Command::set(key.as_bytes(), 1).ttl(" T", Ttl::seconds(10, 0));
    set.value("", b"1").write(&mut request, 1);
    let set = ask(stream, &request).await?;
    request.clear();
    let get = Command::new("mg", key.as_bytes()).end(" v c");
    get.write(&mut request, 2);
    let got = ask(stream, &request).await?;
    match (set, got) {
        (Reply::Error(error), _) | (_, Reply::Error(error)) => {
            Err(format!("does not keep anything: {error}"))
        }
        (
            Reply::Meta(Meta {
                code: Code::Done, ..
            }),
            Reply::Meta(Meta {
                code: Code::Value,
                cas: Some(1..),
                opaque: Some(2),
                ..
            }),
        ) => Ok(()),
        (Reply::Meta(_), Reply::Meta(Meta { cas: Some(0), .. })) => {
            Err("does not compare and swap: it was started with -C".to_owned())
        }
        _ => Err("does not answer meta commands as Memcached does".to_owned()),
    }
}

async fn ask(stream: &mut TcpStream, request: &[u8]) -> Result<Reply, String> {
    let broken = |error: std::io::Error| format!("closed the connection: {error}");
    stream.write_all(request).await.map_err(broken)?;
    let (mut parser, mut input) = (Parser::default(), BytesMut::new());
    loop {
        if stream.read_buf(&mut input).await.map_err(broken)? == 0 {
            return Err("closed the connection".to_owned());
        }
        let reply = parser.next(&mut input);
        if let Some(reply) = reply.map_err(|wrong| wrong.to_string())? {
            return match input.is_empty() {
                true => Ok(reply),
                false => Err("sends more than one answer".to_owned()),
            };
        }
    }
}

fn is_recent(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| {
        let digits = part.split(|letter: char| !letter.is_ascii_digit());
        let digits = digits.into_iter().next().unwrap_or_default();
        digits.parse().unwrap_or(0)
    });
    let numbers: [u64; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    numbers >= LEAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for recent in ["1.6.10", "1.6.18", "1.10", "2.0", "1.6.38-beta", "1.6.22_1"] {
            assert!(is_recent(recent), "{recent}");
        }
        for old in ["1.6.9", "1.5.22", "1.6", "", "x", "1.4.39-2"] {
            assert!(!is_recent(old), "{old}");
        }
    }
}
