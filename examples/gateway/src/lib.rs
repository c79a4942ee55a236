//! A gateway with a rate limit for its clients, and retries and hedged requests towards its upstream. Copy `stack.rs`;
//! the README explains the demo. The library exists for benchmarks.

mod admin;
mod backend;
mod circuit_log;
mod demo;
mod fleet;
mod hop;
mod load;
mod options;
mod problem;
mod profile;
mod proxy;
mod redis_server;
mod report;
mod serve;
mod server;
mod shutdown;
mod stack;
mod traffic;
mod upstream;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use tower::BoxError;

use crate::options::{Command, Options};
pub use crate::{proxy::Proxy, server::Server, stack::client};

/// Runs the program with the arguments of its command line.
pub async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), BoxError> {
    match options.command {
        Some(Command::Demo(demo)) => demo::run(&demo, &options.stack).await,
        None => serve::run(options.serve, &options.stack).await,
    }
}

/// Writes one line to stderr in one piece, because several gateways may share a terminal. Unlike `eprintln!`, it does
/// not panic when stderr is closed. Control characters in foreign text, such as a server's error, do not break the
/// line.
fn log(message: &str) {
    let words: Vec<_> = message.split_whitespace().collect();
    let line = format!("gateway: {}\n", words.join(" "));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
