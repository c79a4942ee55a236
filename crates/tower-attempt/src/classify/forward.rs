/// The methods of [`Classify`](crate::Classify) that every wrapper leaves to the classification in its
/// field `classify`: all that have to do with verdicts. `$inner` turns the wrapper's context into that one's.
macro_rules! forward_classify {
    ($inner:expr, $inner_mut:expr) => {
        fn may_repeat(&self, context: &Self::Context) -> bool {
            self.classify.may_repeat($inner(context))
        }

        fn may_hedge(&self, context: &Self::Context, request: &Req) -> bool {
            self.classify.may_hedge($inner(context), request)
        }

        fn deadline(&self, context: &Self::Context) -> Option<$crate::Deadline> {
            self.classify.deadline($inner(context))
        }

        fn expiry(&self, context: &Self::Context) -> Option<$crate::Deadline> {
            self.classify.expiry($inner(context))
        }

        fn attempt_timeout(&self, context: &Self::Context) -> Option<$crate::AttemptTimeout> {
            self.classify.attempt_timeout($inner(context))
        }

        fn repeat(
            &self,
            context: &mut Self::Context,
            attempt: $crate::Attempt,
            previous: u32,
            request: &mut Req,
        ) {
            let context = $inner_mut(context);
            self.classify.repeat(context, attempt, previous, request);
        }

        fn classify(
            &self,
            context: &Self::Context,
            attempt: &$crate::Attempt,
            outcome: &Result<Res, E>,
        ) -> $crate::Verdict {
            self.classify.classify($inner(context), attempt, outcome)
        }

        fn timed_out(
            &self,
            context: &Self::Context,
            attempt: &$crate::Attempt,
            answer: &Result<Res, E>,
        ) -> $crate::Verdict {
            self.classify.timed_out($inner(context), attempt, answer)
        }

        fn is_repeated_above(&self, context: &Self::Context) -> bool {
            self.classify.is_repeated_above($inner(context))
        }

        fn was_given_up(&self, context: &mut Self::Context, outcome: &Result<Res, E>) -> bool {
            self.classify.was_given_up($inner_mut(context), outcome)
        }

        fn give_up(&self, context: &Self::Context, outcome: &mut Result<Res, E>) {
            self.classify.give_up($inner(context), outcome);
        }

        fn attach<T: Clone + Send + Sync + 'static>(&self, outcome: &mut Result<Res, E>, info: T) {
            self.classify.attach(outcome, info);
        }
    };
}

pub(crate) use forward_classify;
