//! A server that speaks whatever bytes it is told to.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Listens on a port of its own, until the test's runtime ends.
#[derive(Debug)]
pub struct RawServer {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl RawServer {
    /// Has `serve` do the talking on each connection, the first of which is 1.
    pub async fn start<F, T>(serve: F) -> Self
    where
        F: Fn(usize, TcpStream) -> T + Send + 'static,
        T: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(count.fetch_add(1, SeqCst) + 1, stream));
            }
        });
        Self { addr, connections }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its root.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// Reads the head of an HTTP/1 request, up to and with the empty line.
///
/// # Errors
///
/// If the client closes the connection before.
pub async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

/// Ends the connection in order: says that nothing follows, and reads what the client still sends,
/// since what stays unread would make it a reset.
///
/// # Errors
///
/// If the client has reset it.
pub async fn close(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Ends the connection with a reset.
///
/// # Errors
///
/// If the system refuses.
pub fn reset(stream: TcpStream) -> io::Result<()> {
    stream.set_zero_linger()?;
    drop(stream);
    Ok(())
}

/// Answers every request on the connection with a 200 and "hello", over HTTP/1 or HTTP/2.
///
/// # Errors
///
/// If the connection breaks.
pub async fn hello(stream: TcpStream) -> io::Result<()> {
    let hello = hyper::service::service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let served = server.serve_connection(TokioIo::new(stream), hello).await;
    served.map_err(io::Error::other)
}
