use std::{
    fs, ops::Deref, os::unix::fs::MetadataExt, path::PathBuf, process::Command, time::Duration,
};

use tempfile::TempDir;

use super::process::{Server, free_port, pause};

/// A PostgreSQL server with an empty database.
#[derive(Debug)]
pub struct Postgres(Server);

impl Postgres {
    /// Starts a server.
    ///
    /// # Panics
    ///
    /// Panics if PostgreSQL is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        let dir = TempDir::new().expect("a directory for a server");
        let path = dir.path().to_string_lossy().into_owned();
        // PostgreSQL refuses to run as root.
        let user = match fs::metadata(&path).expect("the directory").uid() {
            0 => &[
                "setpriv",
                "--reuid=nobody",
                "--regid=nogroup",
                "--clear-groups",
            ][..],
            _ => &[],
        };
        if !user.is_empty() {
            run(&["chown", "nobody", &path]);
        }
        let data = dir.path().join("data").to_string_lossy().into_owned();
        let cluster = [
            "-D",
            &data,
            "-U",
            "test",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ];
        run(&[user, &[&program("initdb")], &cluster].concat());
        let port = free_port();
        let listen = [
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ];
        let postgres = [
            &program("postgres"),
            "-D",
            &data,
            "-p",
            &port.to_string(),
            "-c",
            "fsync=off",
        ];
        let server = Server::start_in(dir, &[user, &postgres, &listen].concat(), port);
        // The server listens before it has started up.
        let is_ready = || {
            fs::read_to_string(format!("{data}/postmaster.pid"))
                .is_ok_and(|pid| pid.contains("ready"))
        };
        for _ in 0..2_000 {
            if is_ready() {
                return Self(server);
            }
            pause(Duration::from_millis(10));
        }
        panic!("PostgreSQL listens on port {port}, but does not get ready");
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://test@127.0.0.1:{}/postgres", self.port())
    }
}

/// The path of one of PostgreSQL's programs. Debian keeps them off the `PATH`, in a directory per version.
fn program(name: &str) -> String {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let paths = versions
        .flatten()
        .map(|version| version.path().join("bin").join(name));
    let newest: Option<PathBuf> = paths.filter(|path| path.exists()).max();
    newest.map_or_else(
        || name.to_owned(),
        |path| path.to_string_lossy().into_owned(),
    )
}

fn run(command: &[&str]) {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Deref for Postgres {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}
