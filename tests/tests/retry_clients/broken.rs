//! Servers whose answers are no valid responses.

use std::io;

use http::{Method, StatusCode};
use tests::clients::Client;
use tests::raw::{close, hello, reset};
use tests::{Events, Http2Server, RawServer, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_jitter_retry::StopReason;

use crate::{DELAYED, send};

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Closes the connection after it has read some bytes.
    Close,
    /// Resets the connection after it has read some bytes.
    Reset,
    /// Closes the connection within the response's head.
    HalfHead,
    /// Sends bytes of another protocol.
    Garbage,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Close, Self::Reset, Self::HalfHead, Self::Garbage];

    async fn commit(self, mut stream: TcpStream) -> io::Result<()> {
        // Over HTTP/2, reads on until the request follows the client's preface and settings.
        let mut read = 0;
        let mut buffer = [0; 1024];
        let mut is_complete = false;
        while !is_complete {
            read += stream.read(&mut buffer[read..]).await?;
            is_complete = match buffer[..read].starts_with(b"PRI * HTTP/2.0") {
                // The request's head is a frame of type 1 on stream 1.
                true => buffer[..read]
                    .windows(6)
                    .any(|all| matches!(all, [1, _, 0, 0, 0, 1])),
                false => buffer[..read].ends_with(b"\r\n\r\n"),
            };
        }
        match self {
            Self::Close => {}
            Self::Reset => return reset(stream),
            // HTTP/2: three of the nine bytes of a frame's header.
            Self::HalfHead if buffer.starts_with(b"PRI") => stream.write_all(&[0, 0, 0]).await?,
            Self::HalfHead => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await?,
            Self::Garbage => stream.write_all(b"220 mail.example ESMTP\r\n\r\n").await?,
        }
        close(stream).await
    }
}

async fn server(fault: Fault) -> RawServer {
    RawServer::start(move |n, stream| async move {
        match n {
            1 => fault.commit(stream).await,
            _ => hello(stream).await,
        }
    })
    .await
}

#[tokio::test]
async fn a_get_is_retried_until_there_is_a_response() {
    for client in Client::ALL {
        for fault in Fault::ALL {
            let server = server(fault).await;
            let events = Events::default();
            let answer = send(client, &events, Method::GET, &server.url()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{client:?}, {fault:?}: {error:?}"));
            assert_eq!(answer.body.unwrap(), "hello", "{client:?}, {fault:?}");
            assert_eq!(events.delays(), [DELAYED], "{client:?}, {fault:?}");
            assert_eq!(server.connections(), 2, "{client:?}, {fault:?}");
        }
    }
}

/// The server may have processed the request before it failed.
#[tokio::test]
async fn a_post_is_sent_once() {
    for client in Client::ALL {
        for fault in Fault::ALL {
            let server = server(fault).await;
            let events = Events::default();
            let answer = send(client, &events, Method::POST, &server.url()).await;
            assert!(answer.is_err(), "{client:?}, {fault:?}: {answer:?}");
            assert_eq!(events.attempts(), 1, "{client:?}, {fault:?}");
            assert_eq!(events.stop(), StopReason::Fatal, "{client:?}, {fault:?}");
            assert_eq!(server.connections(), 1, "{client:?}, {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_immediately_is_replaced() {
    for client in Client::ALL {
        for end in [close_now, reset] {
            let server = RawServer::start(move |n, stream| async move {
                match n {
                    1 => end(stream),
                    _ => hello(stream).await,
                }
            })
            .await;
            let events = Events::default();
            let answer = send(client, &events, Method::GET, &server.url()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{client:?}: {error:?}"));
            assert_eq!(answer.body.unwrap(), "hello", "{client:?}");
            assert_eq!(server.connections(), 2, "{client:?}");
        }
    }
}

fn close_now(stream: TcpStream) -> io::Result<()> {
    drop(stream);
    Ok(())
}

/// The caller already has the response's head.
#[tokio::test]
async fn a_body_that_breaks_after_its_head_is_the_callers() {
    let http_1 = RawServer::start(|_, mut stream| async move {
        tests::raw::read_head(&mut stream).await?;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel";
        stream.write_all(answer).await?;
        close(stream).await
    })
    .await;
    let http_2 = Http2Server::start(|_| Reply::Half).await;
    for client in Client::ALL {
        let url = match Client::HTTP_1.contains(&client) {
            true => http_1.url(),
            false => http_2.url(),
        };
        let events = Events::default();
        let answer = send(client, &events, Method::GET, &url).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{client:?}");
        assert!(answer.body.is_err(), "{client:?}: {answer:?}");
        assert_eq!(events.attempts(), 1, "{client:?}");
        assert_eq!(events.stop(), StopReason::Success, "{client:?}");
    }
    assert_eq!(http_1.connections(), Client::HTTP_1.len());
    assert_eq!(http_2.requests(), Client::HTTP_2.len());
}
