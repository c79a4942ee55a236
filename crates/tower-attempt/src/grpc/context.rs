use std::time::Duration;

use tokio::time::Instant;

use super::timeout;
use crate::http::{HttpRequest, Nested};
use crate::{Attempt, AttemptKind, AttemptTimeout, Deadline};

/// What [`GrpcClassify`](crate::GrpcClassify) remembers of a call.
#[derive(Clone, Debug)]
pub struct GrpcContext {
    pub(super) idempotent: bool,
    pub(super) is_hedge: bool,
    pub(super) deadline: Option<Deadline>,
    /// When the `grpc-timeout` runs out.
    pub(super) expiry: Option<Deadline>,
    pub(super) attempt_timeout: Option<AttemptTimeout>,
    pub(super) nested: Nested,
}

impl GrpcContext {
    pub(super) fn new<Req: HttpRequest>(request: &Req, idempotent: bool) -> Self {
        // Reads the clock only if there is a timeout.
        let timeout = request.headers().get(timeout::FIELD);
        let timeout = timeout.and_then(timeout::parse);
        let timeout = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let extensions = request.extensions().filter(|all| !all.is_empty());
        let attempt = extensions.and_then(|all| all.get::<Attempt>());
        let own = extensions.and_then(|all| all.get::<Deadline>()).copied();
        Self {
            idempotent,
            is_hedge: attempt.is_some_and(|attempt| attempt.kind() == AttemptKind::Hedge),
            deadline: own,
            expiry: timeout.map(Deadline::at),
            attempt_timeout: extensions.and_then(|all| all.get().copied()),
            nested: extensions.map(Nested::of).unwrap_or_default(),
        }
    }

    /// What is left of the `grpc-timeout`.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let expiry = self.expiry?.instant()?;
        Some(expiry.saturating_duration_since(Instant::now()))
    }
}
