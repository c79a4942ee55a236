//! The program; see the library.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    gateway::main().await
}
