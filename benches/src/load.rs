//! Requests over persistent connections, and the rows of servers under this load.

use std::panic::resume_unwind;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io, str, thread};

use ::tests::servers::{Server, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::measure::time;
use crate::report::{Goal, Row};

/// The core of the measured server. The load runs on [`LOAD_CORE`].
pub(crate) const SERVER_CORE: &str = "0";

const LOAD_CORE: &str = "1";

const ROUNDS: usize = 61;

const CONNECTIONS: usize = 64;

/// Requests of a connection per sample. A sample takes 60 to 250 ms, so a change of the machine's speed usually affects
/// all samples of a round. In much shorter samples, most requests would find the caches filled by the previous server.
const REQUESTS: usize = 160;

/// Looks for `taskset`, which starts each server on its core.
///
/// # Errors
///
/// Returns an error if `taskset` is not installed.
pub(crate) fn find_taskset() -> io::Result<()> {
    let version = Command::new("taskset").arg("--version").output();
    version.map_err(|error| io::Error::other(format!("taskset: {error}")))?;
    Ok(())
}

/// Starts a server in a process of this program, with these options in addition to its port.
///
/// # Errors
///
/// Returns an error if the path of this program is unknown.
pub(crate) fn start_self(options: &[&str]) -> io::Result<Server> {
    let program = env::current_exe()?.to_string_lossy().into_owned();
    Ok(Server::start_on(free_port, |port| {
        let command = ["taskset", "-c", SERVER_CORE, &program, "--serve", port];
        let command = command.iter().chain(options);
        command.map(|&part| part.to_owned()).collect()
    }))
}

/// A path of a server.
pub(crate) struct Subject<'a> {
    case: &'static str,
    name: &'static str,
    server: &'a Server,
    path: &'static str,
    /// The status of its responses.
    status: u16,
    goal: Option<f64>,
    samples: Vec<Sample>,
}

struct Sample {
    nanos: f64,
    /// The server's processor time, in steps of 10 ms.
    busy: Duration,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        case: &'static str,
        name: &'static str,
        server: &'a Server,
        path: &'static str,
    ) -> Self {
        Self {
            case,
            name,
            server,
            path,
            status: 200,
            goal: None,
            samples: Vec::new(),
        }
    }

    /// Expects status 429 instead of 200.
    pub(crate) fn rejecting(self) -> Self {
        Self {
            status: 429,
            ..self
        }
    }

    /// Sets the goal for our share of this subject's time.
    pub(crate) fn goal(self, share: f64) -> Self {
        Self {
            goal: Some(share),
            ..self
        }
    }

    async fn connect(&self) -> io::Result<Vec<Connection>> {
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: client-00000042\r\n\r\n",
            self.path
        );
        let request: Arc<[u8]> = request.into_bytes().into();
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(("127.0.0.1", self.server.port())).await?;
            stream.set_nodelay(true)?;
            let mut connection = Connection {
                stream,
                request: Arc::clone(&request),
                read: Vec::with_capacity(1024),
            };
            // The first request of a client is not rejected.
            connection.request().await?;
            connections.push(connection);
        }
        Ok(connections)
    }

    /// Sends the requests of a sample.
    async fn sample(&mut self, connections: Vec<Connection>) -> io::Result<Vec<Connection>> {
        let busy = || Duration::from_micros(self.server.cpu_micros());
        let before = busy();
        let mut done = Vec::with_capacity(CONNECTIONS);
        let took = time(async {
            let calls = connections.into_iter();
            let calls: JoinSet<_> = calls.map(|call| call.requests(self.status)).collect();
            tokio::select! {
                all = calls.join_all() => done = all,
                () = stay_awake() => {}
            }
        });
        let took = took.await;
        self.samples.push(Sample {
            nanos: took.as_secs_f64() * 1e9 / (CONNECTIONS * REQUESTS) as f64,
            busy: busy().saturating_sub(before),
        });
        done.into_iter().collect()
    }

    fn row(self) -> Row {
        let nanos = self.samples.iter().map(|sample| sample.nanos).collect();
        let row = Row::of_rounds(self.case, self.name, nanos);
        let requests = self.samples.len() * CONNECTIONS * REQUESTS;
        let busy: Duration = self.samples.iter().map(|sample| sample.busy).sum();
        Row {
            per_second: row.ns_median.map(|nanos| 1e9 / nanos),
            server_cpu_us: Some(busy.as_secs_f64() * 1e6 / requests as f64),
            goal: self.goal.map(Goal::Share),
            ..row
        }
    }
}

/// Measures the subjects in turn in each round, so that other work on the machine affects all of them. The next round
/// begins with the next subject. The thread of the load also serves `upstream`, to which proxies can forward.
///
/// # Errors
///
/// Returns an error if `taskset` fails, or a server does not answer with the expected status.
pub(crate) fn rows<const N: usize>(
    subjects: [Subject<'_>; N],
    upstream: Option<std::net::TcpListener>,
) -> io::Result<Vec<Row>> {
    eprintln!("{}: {ROUNDS} rounds of {N} subjects", subjects[0].case);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            pin_this_thread()?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                // Otherwise up to 60 polls of `stay_awake` would delay a response that has arrived.
                .event_interval(1)
                .enable_all()
                .build()?;
            runtime.block_on(async {
                if let Some(upstream) = upstream {
                    upstream.set_nonblocking(true)?;
                    tokio::spawn(serve(TcpListener::from_std(upstream)?));
                }
                measure(subjects).await
            })
        });
        load.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

async fn measure<const N: usize>(mut subjects: [Subject<'_>; N]) -> io::Result<Vec<Row>> {
    let mut connections = Vec::with_capacity(N);
    for subject in &subjects {
        connections.push(subject.connect().await?);
    }
    for round in 0..ROUNDS {
        for turn in 0..N {
            let number = (round + turn) % N;
            let idle = std::mem::take(&mut connections[number]);
            connections[number] = subjects[number].sample(idle).await?;
        }
    }
    Ok(subjects.into_iter().map(Subject::row).collect())
}

/// Keeps the thread of the load from sleeping while it waits. Otherwise the server would have to wake it, which on a
/// virtual machine takes longer than a layer, and which clients and upstreams on other machines do not cost a server.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Accepts the connections of proxies.
async fn serve(upstream: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = upstream.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(answer(stream));
    }
}

/// Answers each request of a connection with the same response. The requests have no bodies.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut read = Vec::with_capacity(1024);
    while stream.read_buf(&mut read).await? > 0 {
        if read.ends_with(b"\r\n\r\n") {
            stream.write_all(RESPONSE).await?;
            read.clear();
        }
    }
    Ok(())
}

const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Sat, 28 Nov 2026 12:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\nHello, World!";

/// Moves this thread to the core of the load.
fn pin_this_thread() -> io::Result<()> {
    let thread = fs::read_link("/proc/thread-self")?;
    let id = thread.file_name().unwrap_or_default();
    let output = Command::new("taskset")
        .args(["-c", "-p", LOAD_CORE])
        .arg(id)
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}

struct Connection {
    stream: TcpStream,
    request: Arc<[u8]>,
    read: Vec<u8>,
}

impl Connection {
    /// Sends the requests of a sample, each after the response to the previous one.
    async fn requests(mut self, status: u16) -> io::Result<Self> {
        for _ in 0..REQUESTS {
            let found = self.request().await?;
            if found != status {
                let text = format!("status {found} instead of {status}");
                return Err(io::Error::other(text));
            }
        }
        Ok(self)
    }

    /// Returns the status of the response.
    async fn request(&mut self) -> io::Result<u16> {
        self.stream.write_all(&self.request).await?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(status) = status(&self.read)? {
                return Ok(status);
            }
        }
    }
}

/// The status of a response with a known length, or `None` if the response is not complete.
fn status(read: &[u8]) -> io::Result<Option<u16>> {
    let text = str::from_utf8(read).map_err(io::Error::other)?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Ok(None);
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse().ok())?
    });
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    match (status, length) {
        (Some(status), Some(length)) => Ok((body.len() >= length).then_some(status)),
        _ => Err(io::Error::other(format!(
            "a response without a length: {head}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_complete_when_its_whole_body_has_arrived() {
        let response = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 5\r\nx: y\r\n\r\nhello";
        for end in 0..response.len() {
            assert_eq!(status(&response.as_bytes()[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(status(response.as_bytes()).unwrap(), Some(429));
    }

    #[test]
    fn a_response_of_unknown_length_is_an_error() {
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(status(chunked).is_err());
        assert!(status(b"hello\r\n\r\n").is_err());
    }
}
