//! A server that sends arbitrary bytes.

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

/// A server on a free port, which runs until the test's runtime ends.
#[derive(Debug)]
pub struct RawServer {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl RawServer {
    /// Starts a server that passes each connection and its 1-based number to `serve`.
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

    /// The address that the server listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The server's root URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// The number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// Reads the head of an HTTP/1 request, including the empty line.
///
/// # Errors
///
/// Returns an error if the client closes the connection within the head.
pub async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

/// Closes the connection cleanly: shuts down the sending side, then reads the rest of the client's bytes. Unread bytes
/// would turn the close into a reset.
///
/// # Errors
///
/// Returns an error if the client reset the connection.
pub async fn close(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Resets the connection.
///
/// # Errors
///
/// Returns the operating system's error.
pub fn reset(stream: TcpStream) -> io::Result<()> {
    stream.set_zero_linger()?;
    drop(stream);
    Ok(())
}

/// Answers every request on the connection with a 200 and "hello", over HTTP/1 or HTTP/2.
///
/// # Errors
///
/// Returns an error if the connection breaks.
pub async fn hello(stream: TcpStream) -> io::Result<()> {
    let hello = hyper::service::service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let served = server.serve_connection(TokioIo::new(stream), hello).await;
    served.map_err(io::Error::other)
}
