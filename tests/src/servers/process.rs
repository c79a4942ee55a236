use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    ops::Range,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use tempfile::TempDir;

/// Maximum time for the start of a server on a busy machine.
const START: Duration = Duration::from_secs(20);

/// Ports for servers. A connection to a free ephemeral port can even connect to itself.
const PORTS: Range<u32> = 10_000..32_000;

/// A server's process and its directory.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
    dir: TempDir,
    command: Vec<String>,
}

impl Server {
    /// Starts a program that listens on this port, in a new directory, and waits until it accepts connections.
    ///
    /// # Panics
    ///
    /// Panics if the program is missing, exits (for example because the port is taken), or does not listen within 20 s.
    #[must_use]
    pub fn start(command: &[&str], port: u16) -> Self {
        let dir = TempDir::new().expect("a directory for a server");
        Self::start_in(dir, command, port)
    }

    /// Like [`start`](Self::start), but tries up to five ports if one is taken.
    ///
    /// # Panics
    ///
    /// Panics like `start` if the program starts on none of the ports.
    #[must_use]
    pub fn start_on(port: impl Fn() -> u16, command: impl Fn(&str) -> Vec<String>) -> Self {
        let start = || {
            let (port, dir) = (port(), TempDir::new().expect("a directory for a server"));
            Self::launch(dir, command(&port.to_string()), port)
        };
        std::iter::repeat_with(start)
            .take(5)
            .find_map(Result::ok)
            .expect("a server that stays, on one of five ports")
    }

    /// Like [`start`](Self::start), in this directory.
    ///
    /// # Panics
    ///
    /// Panics like `start`.
    #[must_use]
    pub fn start_in(dir: TempDir, command: &[&str], port: u16) -> Self {
        let command = command.iter().map(|&part| part.to_owned()).collect();
        let ended = |command| panic!("{command:?} has ended before it listened on port {port}");
        Self::launch(dir, command, port).unwrap_or_else(ended)
    }

    /// Returns the command as an error if the program exits.
    fn launch(dir: TempDir, command: Vec<String>, port: u16) -> Result<Self, Vec<String>> {
        let child = spawn(&command, &dir);
        let mut server = Self {
            child,
            port,
            dir,
            command,
        };
        if server.await_port() {
            Ok(server)
        } else {
            Err(std::mem::take(&mut server.command))
        }
    }

    /// The server's port on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's working directory.
    #[must_use]
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts a killed server on the same port, with empty memory.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.command, &self.dir);
        assert!(self.await_port(), "{:?} has ended", self.command);
    }

    /// Freezes the server: connections stay open, but it answers nothing. When this returns, all of its threads have
    /// stopped.
    pub fn freeze(&self) {
        self.signal("-STOP");
        while !self.is_frozen() {
            pause(Duration::from_millis(1));
        }
    }

    /// Whether every thread has stopped, according to the kernel.
    fn is_frozen(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else {
            return true;
        };
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat"));
            stat.map_or(true, |stat| behind_name(&stat).starts_with('T'))
        })
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// The processor time that the server has used, in microseconds.
    ///
    /// # Panics
    ///
    /// Panics on systems without `/proc`.
    #[must_use]
    pub fn cpu_micros(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("/proc");
        // User and system time, in ticks of 10 ms.
        let ticks = |n| -> u64 {
            behind_name(&stat)
                .split(' ')
                .nth(n)
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        };
        (ticks(11) + ticks(12)) * 10_000
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.pid().to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// Returns `false` if the program exits before it listens.
    fn await_port(&mut self) -> bool {
        let tries = START.as_millis() / 10;
        for _ in 0..tries {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return false;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return true;
            }
            pause(Duration::from_millis(10));
        }
        panic!("{:?} does not listen on port {}", self.command, self.port);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The fields of a process's `stat` after its name, which may contain any character.
fn behind_name(stat: &str) -> &str {
    stat.rsplit(')').next().unwrap_or_default().trim_start()
}

fn spawn(command: &[String], dir: &TempDir) -> Child {
    let (program, args) = command.split_first().expect("a program");
    let started = Command::new(program)
        .args(args)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!(
                "{program} is not installed, and this test starts one. Install it from the system's packages, or run \
                 scripts/test, which does that."
            )
        }
        started => started.expect("a server's process"),
    }
}

/// A free port below the ephemeral ports of Linux and macOS, so that no client's connection takes it before the server
/// does. Another server can still take the port; then the server does not start, and the test fails with that message.
///
/// # Panics
///
/// Panics if no port is free.
#[must_use]
pub fn free_port() -> u16 {
    /// Counts the ports that this process has tried. Processes begin at different ports.
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97);
    let numbers = PORTS.end - PORTS.start;
    (0..numbers)
        .map(|_| first.wrapping_add(TRIED.fetch_add(1, Relaxed)) % numbers + PORTS.start)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("a free port")
}

/// Sleeps in code without a runtime, and so without a pausable clock.
#[expect(
    clippy::disallowed_methods,
    reason = "waits for another process, not in a runtime"
)]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}
