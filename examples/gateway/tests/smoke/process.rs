//! The gateway as a child process that never outlives its test.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_gateway");

/// Runs the gateway to its end, which must come within half a minute.
pub(crate) async fn output(args: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(BINARY);
    let output = command.args(args).kill_on_drop(true).output();
    let ended = tokio::time::timeout(Duration::from_secs(30), output).await;
    ended
        .unwrap_or_else(|_| panic!("{args:?} did not end"))
        .unwrap()
}

/// A serving gateway.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) addr: SocketAddr,
    // Closing the pipe would be one more thing the gateway has to cope with.
    _stdout: BufReader<ChildStdout>,
}

impl Gateway {
    /// Starts it on a free port; returns when it listens.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
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
        Self {
            child,
            addr,
            _stdout: stdout,
        }
    }

    /// In front of a server of the test.
    pub(crate) fn before(upstream: SocketAddr, args: &[&str]) -> Self {
        let url = format!("http://{upstream}");
        Self::start(&[&["--upstream", &url], args].concat())
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id();
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {id}")])
            .status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address where nobody listens.
pub(crate) fn unused_addr() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}
