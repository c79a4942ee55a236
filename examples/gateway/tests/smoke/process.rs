//! The gateway as a child process that never outlives its test.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use tokio::sync::RwLock;

const BINARY: &str = env!("CARGO_BIN_EXE_gateway");

/// Tests that start many processes share it; a test that compares latencies holds it alone.
pub(crate) static MACHINE: RwLock<()> = RwLock::const_new(());

/// A gateway that ends with its parent.
pub(crate) fn command(args: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(BINARY);
    command.args(args).kill_on_drop(true);
    command
}

/// Runs the gateway to its end, which must come within a minute.
pub(crate) async fn output(args: &[&str]) -> Output {
    let output = command(args).output();
    let ended = tokio::time::timeout(Duration::from_secs(60), output).await;
    ended
        .unwrap_or_else(|_| panic!("{args:?} did not end"))
        .unwrap()
}

/// A serving gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) addr: SocketAddr,
    pub(crate) first_line: String,
    // Taken while a test reads it.
    stderr: Option<BufReader<ChildStderr>>,
    // Kept open, so that the gateway can write to it.
    stdout: BufReader<ChildStdout>,
}

impl Gateway {
    /// Starts a gateway on a free port, and returns when it listens.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(args, Stdio::inherit())
    }

    /// The same, for a test that reads the log.
    pub(crate) fn logged(args: &[&str]) -> Self {
        Self::spawn(args, Stdio::piped())
    }

    fn spawn(args: &[&str], stderr: Stdio) -> Self {
        Self::spawn_with_page("off", args, stderr)
    }

    /// Starts it with its live page on a free port. The page's URL is in [`hint`](Self::hint).
    pub(crate) fn with_page(args: &[&str]) -> Self {
        Self::spawn_with_page("127.0.0.1:0", args, Stdio::inherit())
    }

    /// The same on an address of the test, which reads the log.
    pub(crate) fn logged_with_page(admin: &str) -> Self {
        Self::spawn_with_page(admin, &["--profile", "tail"], Stdio::piped())
    }

    fn spawn_with_page(admin: &str, args: &[&str], stderr: Stdio) -> Self {
        let mut child = Command::new(BINARY)
            .args(["--listen", "127.0.0.1:0", "--admin"])
            .arg(admin)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let addr = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        let Some(addr) = addr.and_then(|addr| addr.parse().ok()) else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("no address in {line:?}");
        };
        let stderr = child.stderr.take().map(BufReader::new);
        Self {
            child,
            addr,
            first_line: line,
            stderr,
            stdout,
        }
    }

    /// Starts a gateway in front of the test's server.
    pub(crate) fn before(upstream: SocketAddr, args: &[&str]) -> Self {
        let url = format!("http://{upstream}");
        Self::start(&[&["--upstream", &url], args].concat())
    }

    /// Returns the lines after the first one, which contain examples.
    pub(crate) fn hint(&mut self) -> String {
        let mut hint = String::new();
        while !hint.contains("Ctrl-C") {
            assert_ne!(self.stdout.read_line(&mut hint).unwrap(), 0, "{hint}");
        }
        hint
    }

    /// The next line of the log, which must come within half a minute.
    pub(crate) async fn log_line(&mut self) -> String {
        let mut stderr = self.stderr.take().unwrap();
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            stderr.read_line(&mut line).unwrap();
            (stderr, line.trim_end().to_owned())
        });
        let (stderr, line) = tokio::time::timeout(Duration::from_secs(30), read)
            .await
            .expect("a line in the log")
            .unwrap();
        self.stderr = Some(stderr);
        line
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

/// Sends a signal to a process.
#[cfg(unix)]
pub(crate) fn signal(id: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {id}")])
        .status();
    assert!(sent.unwrap().success());
}

impl Drop for Gateway {
    /// Ends also the Redis server that the gateway started, because `SIGKILL` leaves the gateway no time to do so.
    fn drop(&mut self) {
        #[cfg(unix)]
        let _ = Command::new("pkill")
            .args(["-KILL", "-P", &self.child.id().to_string()])
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A local address without a listener.
pub(crate) fn unused_addr() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}
