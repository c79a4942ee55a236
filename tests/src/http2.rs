//! An HTTP/2 server that writes frame by frame, and so can reject requests in every way that the protocol allows.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::RawServer;
use crate::raw::{close, reset};

// RFC 9113 §6 and §7.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `SETTINGS_MAX_CONCURRENT_STREAMS` is 1.
const ONE_STREAM: [u8; 6] = [0, 3, 0, 0, 0, 1];
/// HPACK's index of `:status: 200`.
const STATUS_200: u8 = 0x88;

/// An error code of HTTP/2 (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the RFC defines them")]
pub enum Code {
    NoError = 0,
    ProtocolError = 1,
    InternalError = 2,
    RefusedStream = 7,
    Cancel = 8,
    EnhanceYourCalm = 11,
}

/// How the server treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Sends a 200 after the end of the request.
    Ok,
    /// Sends nothing.
    Never,
    /// Sends a 200 and resets the stream within the body.
    Half,
    /// Sends `RST_STREAM` after the request's head.
    Reset(Code),
    /// Sends a `GOAWAY` that excludes the request, after the request's head.
    GoAwayBefore(Code),
    /// Sends a `GOAWAY` that includes the request, after the end of the request, and closes the connection without a
    /// response.
    GoAwayAfter,
    /// Sends a `GOAWAY` that includes the request, a moment after the end of the request, and then a 200.
    Drain,
    /// Closes the connection after the end of the request.
    Close,
    /// Resets the connection after the end of the request.
    Abort,
}

/// A server on a free port, which runs until the test's runtime ends. It allows one concurrent stream per connection.
#[derive(Debug)]
pub struct Http2Server {
    raw: RawServer,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: AtomicUsize,
    complete: Mutex<Vec<Vec<u8>>>,
}

impl Http2Server {
    /// Starts a server that treats the 1-based n-th request as `reply(n)`.
    pub async fn start(reply: impl Fn(usize) -> Reply + Clone + Send + Sync + 'static) -> Self {
        let seen = Arc::<Seen>::default();
        let shared = Arc::clone(&seen);
        let serve = move |_, stream| serve(stream, reply.clone(), Arc::clone(&shared));
        let raw = RawServer::start(serve).await;
        Self { raw, seen }
    }

    /// The server's root URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.raw.url()
    }

    /// The number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.raw.connections()
    }

    /// The number of requests whose head has arrived.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.seen.requests.load(SeqCst)
    }

    /// The bodies that arrived completely.
    #[must_use]
    pub fn complete(&self) -> Vec<Vec<u8>> {
        self.seen.complete.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    reply: impl Fn(usize) -> Reply,
    seen: Arc<Seen>,
) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    assert_eq!(preface, PREFACE);
    send(&mut stream, SETTINGS, 0, 0, &ONE_STREAM).await?;
    // Streams whose reply waits for the end of the request.
    let mut open: HashMap<u32, (Reply, Vec<u8>)> = HashMap::new();
    loop {
        let Frame {
            kind,
            flags,
            id,
            payload,
        } = Frame::read(&mut stream).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => send(&mut stream, SETTINGS, ACK, 0, &[]).await?,
            PING if flags & ACK == 0 => send(&mut stream, PING, ACK, 0, &payload).await?,
            HEADERS => match reply(seen.requests.fetch_add(1, SeqCst) + 1) {
                Reply::Reset(code) => reset_stream(&mut stream, id, code).await?,
                Reply::GoAwayBefore(code) => {
                    go_away(&mut stream, id.saturating_sub(2), code).await?
                }
                reply => _ = open.insert(id, (reply, Vec::new())),
            },
            DATA => {
                if let Some((_, body)) = open.get_mut(&id) {
                    body.extend(payload);
                }
            }
            _ => {}
        }
        if !matches!(kind, HEADERS | DATA) || flags & END_STREAM == 0 {
            continue;
        }
        let Some((reply, body)) = open.remove(&id) else {
            continue;
        };
        seen.complete.lock().unwrap().push(body);
        match reply {
            Reply::GoAwayAfter => {
                go_away(&mut stream, id, Code::NoError).await?;
                return close(stream).await;
            }
            Reply::Never => {}
            Reply::Half => {
                send(&mut stream, HEADERS, END_HEADERS, id, &[STATUS_200]).await?;
                send(&mut stream, DATA, 0, id, b"hel").await?;
                reset_stream(&mut stream, id, Code::InternalError).await?;
            }
            Reply::Close => return close(stream).await,
            Reply::Abort => return reset(stream),
            reply => {
                if reply == Reply::Drain {
                    sleep(Duration::from_millis(100)).await;
                    go_away(&mut stream, id, Code::NoError).await?;
                }
                let flags = END_HEADERS | END_STREAM;
                send(&mut stream, HEADERS, flags, id, &[STATUS_200]).await?;
            }
        }
    }
}

struct Frame {
    kind: u8,
    flags: u8,
    id: u32,
    payload: Vec<u8>,
}

impl Frame {
    async fn read(stream: &mut TcpStream) -> io::Result<Self> {
        // 24 bits of length, then 8 bits of type.
        let length_and_kind = stream.read_u32().await?;
        let flags = stream.read_u8().await?;
        let id = stream.read_u32().await?;
        let [a, b, c, kind] = length_and_kind.to_be_bytes();
        let length = u32::from_be_bytes([0, a, b, c]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await?;
        Ok(Self {
            kind,
            flags,
            id,
            payload,
        })
    }
}

async fn send(
    stream: &mut TcpStream,
    kind: u8,
    flags: u8,
    id: u32,
    payload: &[u8],
) -> io::Result<()> {
    let [.., a, b, c] = payload.len().to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend(id.to_be_bytes());
    frame.extend(payload);
    stream.write_all(&frame).await
}

async fn go_away(stream: &mut TcpStream, last: u32, code: Code) -> io::Result<()> {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend(u32::from(code as u8).to_be_bytes());
    send(stream, GOAWAY, 0, 0, &payload).await
}

async fn reset_stream(stream: &mut TcpStream, id: u32, code: Code) -> io::Result<()> {
    let code = u32::from(code as u8).to_be_bytes();
    send(stream, RST_STREAM, 0, id, &code).await
}
