//! `examples/gateway` under load: with all layers, without layers, and with the floor of the layers. Also nginx as the
//! same proxy.
//!
//! The proxy is a process on one core. The load and the upstream are a thread on another.

mod floor;

use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, io};

use tempfile::TempDir;
use tests::servers::{Server, free_port};

pub(crate) use self::floor::serve;
use crate::load::{self, SERVER_CORE, Subject, find_taskset, start_self};
use crate::report::{BARE, OURS, Row};

const CASE: &str = "gateway, all layers";

/// 0.9 of the rate of the same proxy without layers.
const NEARLY_BARE: f64 = 1.111;

/// Measures the rows.
///
/// # Errors
///
/// Returns an error if the gateway is not built, or if `nginx` or `taskset` is not installed.
pub(crate) fn rows() -> Result<Vec<Row>, Box<dyn Error>> {
    find_taskset()?;
    let gateway = beside_this_program("gateway")?;
    let mut nginx = Command::new("nginx");
    let version = nginx.arg("-v").stderr(Stdio::null()).status();
    version.map_err(|error| format!("nginx: {error}"))?;
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = upstream.local_addr()?.port();
    let nginx = start_nginx(port)?;
    let ours = start_gateway(&gateway, port, &[]);
    let bare = start_gateway(&gateway, port, &["--bare"]);
    let only = |layer| start_gateway(&gateway, port, &["--layers", layer]);
    let [limit, retry, hedge] = ["limit", "retry", "hedge"].map(only);
    let floor = start_self(&["--upstream", &port.to_string()])?;
    // Longer than any response.
    let unhedged = start_gateway(&gateway, port, &["--hedge-at", "10000"]);
    let subjects = [
        Subject::new(CASE, OURS, &ours, "/"),
        Subject::new(CASE, BARE, &bare, "/").goal(NEARLY_BARE),
        Subject::new(CASE, "bare+limit", &limit, "/"),
        Subject::new(CASE, "bare+retry", &retry, "/"),
        Subject::new(CASE, "bare+hedge", &hedge, "/"),
        Subject::new(CASE, "floor", &floor, "/"),
        Subject::new(CASE, "ours, no hedge due", &unhedged, "/"),
        Subject::new(CASE, "nginx", &nginx, "/"),
    ];
    Ok(load::rows(subjects, Some(upstream))?)
}

fn beside_this_program(name: &str) -> io::Result<PathBuf> {
    let program = env::current_exe()?.with_file_name(name);
    program.try_exists()?.then_some(program).ok_or_else(|| {
        io::Error::other(format!(
            "{name} is not built: cargo build --release -p {name}"
        ))
    })
}

/// A gateway with limits that admit every request.
fn start_gateway(program: &std::path::Path, upstream: u16, options: &[&str]) -> Server {
    let program = program.to_string_lossy();
    let upstream = format!("http://127.0.0.1:{upstream}");
    Server::start_on(free_port, |port| {
        let listen = format!("127.0.0.1:{port}");
        let command = [
            "taskset",
            "-c",
            SERVER_CORE,
            &program,
            "--listen",
            &listen,
            "--upstream",
            &upstream,
            "--admin",
            "off",
            "--limit",
            "1000000000",
            "--burst",
            "1000000000",
        ];
        let command = command.iter().chain(options);
        command.map(|&part| part.to_owned()).collect()
    })
}

/// An nginx of one process that forwards to the port `upstream` and keeps its connections.
fn start_nginx(upstream: u16) -> io::Result<Server> {
    let (dir, port) = (TempDir::new()?, free_port());
    let settings = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;
        events {{ worker_connections 1024; }}
        http {{
            access_log off; keepalive_requests 1000000000;
            client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi; scgi_temp_path scgi;
            upstream upstream {{
                server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000;
            }}
            server {{
                listen 127.0.0.1:{port};
                location / {{
                    proxy_pass http://upstream; proxy_http_version 1.1;
                    proxy_set_header Connection \"\"; proxy_set_header X-Forwarded-For $remote_addr;
                    proxy_set_header X-Forwarded-Host $http_host; proxy_set_header Via \"1.1 nginx\";
                }}
            }}
        }}"
    );
    fs::write(dir.path().join("nginx.conf"), settings)?;
    let command = [
        "taskset",
        "-c",
        SERVER_CORE,
        "nginx",
        "-p",
        ".",
        "-c",
        "nginx.conf",
    ];
    Ok(Server::start_in(dir, &command, port))
}
