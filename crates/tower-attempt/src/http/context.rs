use http::header::{IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{Extensions, HeaderName, Method};

use super::idempotency_key::has_key;
use super::message::Target;
use super::{HttpRequest, Nested};
use crate::{Attempt, AttemptKind, AttemptTimeout, Deadline};

/// What makes an answer depend on an earlier attempt's effect.
const PRECONDITIONS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];

/// What [`HttpClassify`](crate::HttpClassify) remembers of a request.
#[derive(Clone, Debug)]
pub struct HttpContext {
    pub(super) idempotent: bool,
    connect: bool,
    hedgeable: bool,
    pub(super) deadline: Option<Deadline>,
    pub(super) attempt_timeout: Option<AttemptTimeout>,
    pub(super) nested: Nested,
    /// Where the request goes, if its client may be sent elsewhere.
    pub(super) target: Option<Target>,
}

impl HttpContext {
    #[inline]
    pub(super) fn new<Req: HttpRequest>(request: &Req) -> Self {
        let (method, headers) = (request.method(), request.headers());
        let is_safe = method.is_safe();
        let by_method = is_safe || method.is_idempotent();
        let conditional = || PRECONDITIONS.iter().any(|name| headers.contains_key(name));
        let context = Self {
            idempotent: by_method || has_key(headers),
            connect: method == Method::CONNECT,
            hedgeable: by_method && (is_safe || !conditional()),
            deadline: None,
            attempt_timeout: None,
            nested: Nested::default(),
            target: request.target(),
        };
        match request.extensions() {
            Some(extensions) if !extensions.is_empty() => context.with(extensions),
            _ => context,
        }
    }

    /// With what the request's extensions say.
    #[inline(never)]
    fn with(self, extensions: &Extensions) -> Self {
        let is_hedge = |attempt: &Attempt| attempt.kind() == AttemptKind::Hedge;
        Self {
            hedgeable: self.hedgeable && !extensions.get().is_some_and(is_hedge),
            deadline: extensions.get().copied(),
            attempt_timeout: extensions.get().copied(),
            nested: Nested::of(extensions),
            ..self
        }
    }

    pub(super) fn may_repeat(&self) -> bool {
        !self.connect
    }

    pub(super) fn may_hedge(&self) -> bool {
        self.hedgeable
    }
}
