use std::task::{Context, Poll};

use tower_service::Service;

use super::{CallFuture, CallLimit, LimitError, future::CallState};
use crate::{key::KeySink, limits::Check};

impl<S, Req> Service<Req> for CallLimit<S, Req>
where
    S: Service<Req, Error: 'static> + Clone,
{
    type Response = S::Response;
    type Error = LimitError<S::Error>;
    type Future = CallFuture<S, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(LimitError::Inner)
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        let calls = &self.layer.calls;
        let (mut sink, mut asked) = (KeySink::new(), None);
        let fast = (calls.limits).decide_fast(&mut sink, &mut asked, calls.apply(&request));
        let state = match fast {
            Ok(decision) if decision.allowed && decision.delay.is_zero() => {
                CallState::Calling(self.inner.call(request))
            }
            fast => {
                // Filled in place, because a `Check` is large.
                let mut check = Check::default();
                let outcome = match fast {
                    Ok(decision) => check.decided(sink, asked, decision),
                    Err(mut known) => {
                        let mut apply = calls.apply(&request);
                        calls.limits.decide(&mut check, |rule, sink, asked| {
                            known.take().unwrap_or_else(|| apply(rule, sink, asked))
                        })
                    }
                };
                self.handle_outcome(outcome, &mut check, request)
            }
        };
        CallFuture { state }
    }
}
