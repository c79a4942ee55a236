/// Implements what the retry and the hedge crate have in common, such as constructors, setters of the builder, methods
/// of the handle, `Debug` and `Layer`.
///
/// Users should not have to import a trait, so the setters are inherent methods. Only the crate of a type can add such
/// methods, so each crate calls this macro. `$builder` and `$layer` are tuple structs of
/// [`Parts`](crate::layer::Parts). The builder's settings are a `$config` with a field `common`. The layer's settings
/// are [`Live`](crate::layer::Live) and have a field `config`; `$handle` is a tuple struct of these settings.
/// `$service` is a struct with the fields `inner` and `parts`. `$extras` is the name of the extra attempts.
#[doc(hidden)]
#[macro_export]
macro_rules! __layer {
    (
        $(#[$layer_http:meta])* http,
        $(#[$layer_builder:meta])* builder,
        $krate:literal, $extras:literal, $builder:ident, $layer:ident, $service:ident<$($x:ident),+>,
        $handle:ident, $counts:ident, $config:ident,
        $(#[$http:meta])* http,
        $(#[$grpc:meta])* grpc,
        $(#[$idempotent_if:meta])* idempotent_if of [$($dialect:tt)*] $protocol:ty, as in { $(#[$example:meta])* },
    ) => {
        impl $layer {
            $(#[$layer_builder])*
            pub fn builder() -> $builder {
                $builder($crate::layer::Parts {
                    protocol: $crate::Generic::default(),
                    observer: $crate::NoObserver,
                    options: ::std::default::Default::default(),
                    settings: $config::default(),
                })
            }
        }

        #[cfg(feature = "http")]
        impl $layer<$crate::Http> {
            $(#[$layer_http])*
            ///
            /// ```
            /// use bytes::Bytes;
            /// use http::{Request, Response};
            /// use http_body_util::Empty;
            /// use tower::{BoxError, Layer, ServiceExt, service_fn};
            #[doc = concat!("use ", $krate, "::", stringify!($layer), ";")]
            ///
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
            /// let hello = service_fn(|_: Request<_>| async { Ok::<_, BoxError>(Response::new("hello".to_owned())) });
            #[doc = concat!("let service = ", stringify!($layer), "::http().layer(hello);")]
            /// let response = service.oneshot(Request::new(Empty::<Bytes>::new())).await?;
            /// assert_eq!(response.status(), 200);
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn http() -> Self {
                $layer::builder().http().finish()
            }
        }

        impl<P, O, $($x),+> ::std::fmt::Debug for $builder<P, O, $($x),+> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(stringify!($builder)).field(&self.0).finish()
            }
        }

        impl<P, O, $($x),+> ::std::fmt::Debug for $layer<P, O, $($x),+> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(stringify!($layer)).field(&self.0).finish()
            }
        }

        impl<S: ::std::fmt::Debug, P, O, $($x),+> ::std::fmt::Debug for $service<S, P, O, $($x),+> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_tuple(stringify!($service)).field(&self.inner).finish()
            }
        }

        impl<P, O, $($x),+> $layer<P, O, $($x),+> {
            /// Returns a handle that watches the layer, and can change its settings while the layer is in use.
            #[must_use]
            pub fn handle(&self) -> $handle {
                $handle(self.0.settings.clone())
            }
        }

        impl $handle {
            /// Returns what the layer has counted since it was built, such as the number of extra attempts.
            #[must_use]
            pub fn counts(&self) -> $counts {
                self.0.load().counters.read()
            }

            /// Returns a clone of the layer's budget. The clone and the layer's budget share their tokens. With
            #[doc = concat!("[`budget_by`](", stringify!($builder), "::budget_by) or `shared_budget_by`, returns the budget of")]
            /// requests without a key.
            #[must_use]
            pub fn budget(&self) -> $crate::Budget {
                let settings = self.0.load();
                settings.config.common.without_key(&settings.budget)
            }

            /// Returns the current mode.
            #[must_use]
            pub fn mode(&self) -> $crate::Mode {
                self.0.load().config.common.mode()
            }

            #[doc = concat!("Sets the mode: switches ", $extras, " on or off, or only counts them.")]
            pub fn set_mode(&self, mode: $crate::Mode) {
                // Cannot fail: a mode contradicts no other setting.
                let _ = self.change(|given| given.common.mode = Some(mode));
            }

            /// Sets the budget. If this layer deposited into the former budget, it deposits into the new budget, too.
            ///
            /// If this layer left the deposits to a layer above, it still deposits nothing. Give the layer above a
            /// clone of the new budget, too. See
            #[doc = concat!("[`shared_budget`](", stringify!($builder), "::shared_budget).")]
            ///
            /// # Errors
            ///
            /// Returns an error if the budget is out of its range or the layer has budgets by key. A hedge layer whose
            /// trigger is an explicitly set `percentile` also rejects a budget that cannot pay for that percentile.
            pub fn set_budget(&self, budget: $crate::Budget) -> Result<(), $crate::BuildError> {
                let deposits = self.0.load().config.common.deposits();
                let pool = $crate::layer::Pool::one(budget, deposits);
                self.change(|given| given.common.pool.set("budget", pool))
            }

            /// Applies the settings that were given to `layer`. Other settings stay.
            ///
            /// Every service of this handle's layer uses the new settings from its next call on. Calls in flight end
            /// with the settings that they began with. If `layer` was given a single budget, both layers share it.
            ///
            /// Name, budgets by key, counts and learned latencies stay. The parts whose types are parameters of the
            /// layer also stay. Examples are the observer, and the protocol with its rules and with settings like
            /// `replay_limit`.
            ///
            /// # Errors
            ///
            /// Returns an error and changes nothing if a setting of `layer` contradicts a setting or a part that stays.
            pub fn retune<P, O, $($x),+>(&self, layer: &$layer<P, O, $($x),+>) -> Result<(), $crate::BuildError> {
                let given = &layer.0.settings.load().config;
                self.0.change(|settings| settings.changed(given))
            }

            pub(crate) fn change(&self, set: impl FnOnce(&mut $config)) -> Result<(), $crate::BuildError> {
                let mut given = $config::default();
                set(&mut given);
                self.0.change(|settings| settings.changed(&given))
            }
        }

        impl<S, P: Clone, O: Clone, $($x: Clone),+> ::tower_layer::Layer<S> for $layer<P, O, $($x),+> {
            type Service = $service<S, P, O, $($x),+>;

            fn layer(&self, inner: S) -> Self::Service {
                let parts = self.0.clone().settings($crate::layer::Current::new);
                $service { inner, parts }
            }
        }

        impl<P, O, $($x),+> $builder<P, O, $($x),+> {
            /// The name of the layer: a label of its metrics, spans and log lines. Empty means that it has no name.
            ///
            /// # Default
            ///
            /// Empty.
            ///
            /// ```
            #[doc = concat!("use ", $krate, "::", stringify!($layer), ";")]
            ///
            #[doc = concat!("let layer = ", stringify!($layer), "::builder().name(\"payments\").build()?;")]
            /// assert!(format!("{layer:?}").contains("payments"));
            #[doc = concat!("# Ok::<_, ", $krate, "::BuildError>(())")]
            /// ```
            pub fn name(mut self, name: impl Into<::std::sync::Arc<str>>) -> Self {
                self.0.settings.common.name = name.into();
                self
            }

            /// The receiver of the layer's events. It replaces an observer that was set before. An `Arc` of an observer
            /// is an observer, too, and so is a pair of observers.
            ///
            /// # Default
            ///
            /// [`NoObserver`](crate::NoObserver), which costs nothing.
            pub fn observer(self, observer: impl $crate::Observer) -> $builder<P, $crate::Observed, $($x),+> {
                $builder(self.0.observer($crate::Observed::new(observer)))
            }

            #[doc = concat!("Whether the layer sends ", $extras, ", only counts the ", $extras)]
            /// that it would probably send, or does neither.
            ///
            /// # Default
            ///
            /// [`Mode::On`](crate::Mode::On). A handle can change the mode while the layer is in use.
            pub fn mode(mut self, mode: $crate::layer::Mode) -> Self {
                self.0.settings.common.mode = Some(mode);
                self
            }

            #[doc = concat!("The budget that ", $extras, " draw on, and that successful calls deposit into.")]
            ///
            /// Call this setter for the outermost of the layers that share the budget. Give the layers below a clone of
            /// the budget with [`shared_budget`](Self::shared_budget). If the budget has a ratio, a hedge layer
            /// deposits only for requests that may be hedged.
            ///
            /// # Default
            ///
            #[doc = concat!("See the table of [`", stringify!($builder), "`].")]
            ///
            /// # Errors
            ///
            /// `build` fails if the budget is out of its range, or if `shared_budget`, `budget_by` or
            /// `shared_budget_by` was also called. A hedge layer also rejects a budget that cannot pay for
            /// the `percentile` that was set.
            pub fn budget(mut self, budget: $crate::Budget) -> Self {
                self.0.settings.common.pool.set("budget", $crate::layer::Pool::one(budget, true));
                self
            }

            #[doc = concat!("The budget that ", $extras, " draw on, and that a layer above deposits into.")]
            ///
            /// With [`grpc_throttle`](crate::Budget::grpc_throttle), a failed attempt usually counts once: either this
            /// layer or the layer above records it. If a resend is unsafe or impossible, a retry layer leaves the
            /// failure to the layer above. If a retry layer has used up its attempts, budget or time, it usually
            /// records the last failure and marks the response. The layer above does not record a marked failure again.
            /// An `Err` and the outcomes of a generic layer carry no mark, so such a last failure may count twice.
            ///
            /// # Errors
            ///
            /// The errors of [`budget`](Self::budget).
            ///
            /// ```
            #[doc = concat!("use ", $krate, "::{Budget, ", stringify!($layer), "};")]
            ///
            #[doc = concat!("let builder = ", stringify!($layer), "::builder().shared_budget(Budget::ratio(0.1));")]
            /// assert!(builder.clone().build().is_ok());
            /// let error = builder.budget(Budget::ratio(0.1)).build().unwrap_err();
            /// assert_eq!(error.to_string(), "budget is set, but must be unset besides shared_budget");
            /// ```
            pub fn shared_budget(mut self, budget: $crate::Budget) -> Self {
                self.0.settings.common.pool.set("shared_budget", $crate::layer::Pool::one(budget, false));
                self
            }
        }

        impl<O, $($x),+> $builder<$crate::Generic, O, $($x),+> {
            $(#[$http])*
            #[cfg(feature = "http")]
            pub fn http(self) -> $builder<$crate::Http, O, $($x),+> {
                $builder(self.0.protocol(|_| $crate::Http::default()))
            }

            $(#[$grpc])*
            #[cfg(feature = "grpc")]
            pub fn grpc(self) -> $builder<$crate::Grpc, O, $($x),+> {
                $builder(self.0.protocol(|_| $crate::Grpc::default()))
            }
        }

        impl<K, O, $($x),+> $builder<$crate::Generic<$crate::EveryError, K>, O, $($x),+> {
            /// Makes an outcome retryable if a closure returns `true` for it.
            ///
            /// A retry layer may send another attempt after such an outcome. In a hedge layer, such an outcome does not
            /// win while another attempt is in flight. If a layer below rejects the first attempt or a retry without
            /// naming a wait, the outcome is usually not retryable.
            ///
            /// # Default
            ///
            /// Every `Err` is retryable, except such a rejection. No `Ok` of the service is retryable. A timeout of an
            /// attempt is retryable. With this setting, the closure decides on the outcome of such a timeout, too.
            ///
            /// ```
            #[doc = concat!("use ", $krate, "::", stringify!($layer), ";")]
            /// use tower::{Layer, ServiceExt, service_fn};
            ///
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower::BoxError> {
            #[doc = concat!("let layer = ", stringify!($layer), "::builder()")]
            ///     .retry_if(|outcome: &Result<u32, String>| matches!(outcome, Err(error) if error == "busy"))
            ///     .build()?;
            /// let service = layer.layer(service_fn(|_: ()| async { Err::<u32, _>("not found".to_owned()) }));
            /// assert_eq!(service.oneshot(()).await.unwrap_err(), "not found");
            /// # Ok(())
            /// # }
            /// ```
            pub fn retry_if<F, Res, E>(
                self,
                retry: F,
            ) -> $builder<$crate::Generic<$crate::RetryIf<F>, K>, O, $($x),+>
            where
                F: Fn(&Result<Res, E>) -> bool,
            {
                self.classify_with($crate::RetryIf(retry))
            }

            /// Classifies outcomes with a closure that returns a [`Verdict`](crate::Verdict), such as
            /// [`Verdict::throttled`](crate::Verdict::throttled). If it is enough to tell whether an outcome is
            /// retryable, use [`retry_if`](Self::retry_if).
            ///
            /// ```
            /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
            /// use tower::{Layer, ServiceExt, service_fn};
            #[doc = concat!("use ", $krate, "::{", stringify!($layer), ", Verdict};")]
            ///
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower::BoxError> {
            #[doc = concat!("let layer = ", stringify!($layer), "::builder()")]
            ///     .classify_fn(|outcome: &Result<String, &str>, _| match outcome {
            ///         Ok(answer) if answer == "overloaded" => Verdict::throttled(),
            ///         Ok(_) => Verdict::Success,
            ///         Err(_) => Verdict::Fatal,
            ///     })
            ///     .build()?;
            ///
            /// let attempts = AtomicU32::new(0);
            /// let service = layer.layer(service_fn(|_: ()| {
            ///     attempts.fetch_add(1, Relaxed);
            ///     async { Err("not found") }
            /// }));
            /// assert_eq!(service.oneshot(()).await, Err("not found"));
            /// assert_eq!(attempts.load(Relaxed), 1); // the error is fatal
            /// # Ok(())
            /// # }
            /// ```
            pub fn classify_fn<F, Res, E>(
                self,
                classify: F,
            ) -> $builder<$crate::Generic<$crate::ClassifyFn<F>, K>, O, $($x),+>
            where
                F: Fn(&Result<Res, E>, &$crate::Attempt) -> $crate::Verdict,
            {
                self.classify_with($crate::ClassifyFn(classify))
            }

            /// Decides with a rule of your own which requests may be resent, and classifies their outcomes; see
            /// [`RequestRule`](crate::RequestRule) and [`Classify`](crate::Classify).
            ///
            /// ```
            /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
            /// use tower::{Layer, ServiceExt, service_fn};
            #[doc = concat!("use ", $krate, "::{Attempt, Classify, RequestRule, ", stringify!($layer), ", Verdict};")]
            ///
            /// #[derive(Clone)]
            /// enum Query {
            ///     Read(String),
            ///     Write(String),
            /// }
            ///
            /// /// Only reads are safe to resend.
            /// #[derive(Clone)]
            /// struct Reads;
            ///
            /// impl RequestRule<Query> for Reads {
            ///     type Context = bool;
            ///
            ///     fn context(&self, query: &Query) -> bool {
            ///         matches!(query, Query::Read(_))
            ///     }
            ///
            ///     fn may_retry(&self, is_read: &bool) -> bool {
            ///         *is_read
            ///     }
            /// }
            ///
            /// impl<Res, E> Classify<Query, Res, E> for Reads {
            ///     fn classify(&self, _: &bool, _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
            ///         match outcome {
            ///             Ok(_) => Verdict::Success,
            ///             Err(_) => Verdict::transient(),
            ///         }
            ///     }
            /// }
            ///
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower::BoxError> {
            #[doc = concat!("let layer = ", stringify!($layer), "::builder().classify_with(Reads).build()?;")]
            ///
            /// let attempts = AtomicU32::new(0);
            /// let service = layer.layer(service_fn(|_: Query| {
            ///     attempts.fetch_add(1, Relaxed);
            ///     async { Err::<(), _>("busy") }
            /// }));
            /// assert!(service.oneshot(Query::Write("x = 1".to_owned())).await.is_err());
            /// assert_eq!(attempts.load(Relaxed), 1); // a write is not resent
            /// # Ok(())
            /// # }
            /// ```
            pub fn classify_with<R>(self, rule: R) -> $builder<$crate::Generic<R, K>, O, $($x),+> {
                $builder(self.0.protocol(|protocol| protocol.rule(rule)))
            }
        }

        #[cfg(feature = "http")]
        impl<P: $crate::Dialect, O, $($x),+> $builder<P, O, $($x),+> {
            /// Maximum number of bytes to record of a request's streaming body, so that the request can be resent. A
            /// body that is known to be in memory is shared and has no limit.
            ///
            /// Once an attempt in flight has read more than the limit, the layer usually cannot resend the request.
            /// Usually, the oldest attempt in flight then continues with the body, and the other attempts are
            /// interrupted.
            ///
            /// Each data frame counts its length, or 64 bytes if it is shorter. A record takes up to about twice the
            /// limit in memory, plus the frame that exceeds the limit, and rarely a second such frame. A frame that is
            /// a slice of a larger buffer keeps the whole buffer in memory.
            ///
            /// # Default
            ///
            /// 64 KiB, as in linkerd2. Each request in flight may take about twice as much memory.
            pub fn replay_limit(self, bytes: usize) -> Self {
                self.rule(|settings| settings.replay_limit = Some(bytes))
            }

            /// Classifies outcomes with a closure, which sees the verdict of the standard rules.
            ///
            /// The closure's verdict replaces the standard verdict. If the closure's verdict has no
            /// [hint](crate::Hint), a server's hint still applies. If a layer below rejected the request, and neither
            /// that layer nor the closure names a wait, the request is still not retried.
            ///
            /// The closure never makes another attempt safe. A retryable verdict is obeyed only if the request is
            /// idempotent, if there is proof that the server did not process it, or if the server rejected it (HTTP's
            /// 429, gRPC's pushback).
            ///
            /// A retry layer also calls the closure for an attempt that exceeded the attempt timeout. In a hedge layer,
            /// a retryable outcome does not win while another attempt is in flight.
            ///
            /// # Default
            ///
            /// The tables of [`Http`](crate::Http) and `Grpc`.
            ///
            /// # Cost
            ///
            /// Each call allocates a copy of its method and URI.
            ///
            /// ```
            /// use bytes::Bytes;
            /// use http::{Request, Response, StatusCode};
            /// use http_body_util::Empty;
            /// use tower::{BoxError, Layer, ServiceExt, service_fn};
            #[doc = concat!("use ", $krate, "::{", stringify!($layer), ", Verdict};")]
            ///
            /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
            #[doc = concat!("let layer = ", stringify!($layer), "::builder()")]
            ///     .http()
            ///     .classify(|outcome| match outcome.status() {
            ///         // The first attempt may have reached a replica that lags behind.
            ///         Some(StatusCode::NOT_FOUND) if outcome.attempt().number() == 1 => Verdict::transient(),
            ///         _ => outcome.verdict(),
            ///     })
            ///     .build()?;
            ///
            /// let missing = service_fn(|_: Request<_>| async {
            ///     let mut response = Response::new(String::new());
            ///     *response.status_mut() = StatusCode::NOT_FOUND;
            ///     Ok::<_, BoxError>(response)
            /// });
            /// let response = layer.layer(missing).oneshot(Request::new(Empty::<Bytes>::new())).await?;
            /// assert_eq!(response.status(), 404); // every attempt received it
            /// # Ok(())
            /// # }
            /// ```
            pub fn classify(
                self,
                rule: impl Fn($crate::OutcomeView<'_, P::Code>) -> $crate::Verdict + Send + Sync + 'static,
            ) -> Self {
                self.rule(|settings| settings.classify = Some(::std::sync::Arc::new(rule)))
            }

            #[doc = concat!("The budgets that ", $extras, " draw on and successful calls deposit into.")]
            /// The closure names the key of each request's budget, so that a failing backend usually does not use up
            /// the budgets of the other backends.
            ///
            /// Requests for which the closure returns `None` share one budget. A handle cannot change these budgets.
            /// [`Budgets::get`](crate::Budgets::get) returns the budget of a key.
            ///
            /// # Default
            ///
            /// One [`budget`](Self::budget) for all requests.
            ///
            /// # Errors
            ///
            /// The errors of [`budget`](Self::budget). `build` also rejects `budgets` with a capacity out of its range.
            ///
            /// ```
            #[doc = concat!("use ", $krate, "::{Budget, Budgets, ", stringify!($layer), "};")]
            ///
            #[doc = concat!("let builder = ", stringify!($layer), "::builder()")]
            ///     .http()
            ///     .budget_by(Budgets::new(Budget::default()), |request| request.authority());
            /// assert!(builder.clone().build().is_ok());
            /// let error = builder.budget(Budget::default()).build().unwrap_err();
            /// assert_eq!(error.to_string(), "budget is set, but must be unset besides budget_by");
            /// ```
            pub fn budget_by(
                self,
                budgets: $crate::Budgets,
                key: impl for<'a> Fn($crate::RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
            ) -> Self {
                self.pools("budget_by", budgets, key, true)
            }

            /// Like [`budget_by`](Self::budget_by), with budgets that a layer above deposits into. Give that layer a
            /// `budget_by` with a clone of these [`Budgets`](crate::Budgets), and a closure that names the same keys.
            pub fn shared_budget_by(
                self,
                budgets: $crate::Budgets,
                key: impl for<'a> Fn($crate::RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
            ) -> Self {
                self.pools("shared_budget_by", budgets, key, false)
            }

            fn pools(
                mut self,
                setter: &'static str,
                budgets: $crate::Budgets,
                key: impl for<'a> Fn($crate::RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
                deposits: bool,
            ) -> Self {
                let mut pool = $crate::layer::Pool::one(budgets.template().clone(), deposits);
                pool.budgets = Some(budgets.clone());
                self.0.settings.common.pool.set(setter, pool);
                self.rule(|settings| settings.budgets = Some((budgets, ::std::sync::Arc::new(key))))
            }

            fn rule(mut self, set: impl FnOnce(&mut $crate::ProtocolSettings<P::Code>)) -> Self {
                self.0.protocol = self.0.protocol.with(set);
                self
            }
        }

        $(#[$idempotent_if])*
        impl<$($dialect)* O, $($x),+> $builder<$protocol, O, $($x),+> {
            /// Declares that the requests for which a closure returns `true` are idempotent, in addition to the
            /// requests that the protocol calls idempotent.
            ///
            /// Use it for a POST that only reads, for a POST that the server deduplicates, and for gRPC methods. A
            /// [`classify`](Self::classify) rule never makes another attempt safe; this setting does.
            ///
            /// # Default
            ///
            /// HTTP: idempotent methods, and requests with an `Idempotency-Key` that is not empty. gRPC: the listed
            /// `idempotent_methods`.
            ///
            $(#[$example])*
            pub fn idempotent_if(
                self,
                rule: impl Fn($crate::RequestHead<'_>) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.rule(|settings| settings.idempotent_if = Some(::std::sync::Arc::new(rule)))
            }
        }

        #[cfg(feature = "http")]
        impl<O, $($x),+> $builder<$crate::Http, O, $($x),+> {
            /// Further statuses to retry for idempotent requests, in addition to the default ones. In a hedge layer, a
            /// response with such a status usually does not win while another attempt is in flight.
            ///
            /// # Default
            ///
            /// No further ones. The default statuses are 408, 425, 429, 500, 502, 503 and 504.
            ///
            /// # Errors
            ///
            /// `build` rejects a status below 400, which is no failure.
            ///
            /// ```
            /// use http::StatusCode;
            #[doc = concat!("use ", $krate, "::", stringify!($layer), ";")]
            ///
            #[doc = concat!("let builder = ", stringify!($layer), "::builder().http();")]
            /// assert!(builder.clone().retry_statuses([StatusCode::LOCKED]).build().is_ok());
            /// let error = builder.retry_statuses([StatusCode::FOUND]).build().unwrap_err();
            /// assert_eq!(error.field(), "retry_statuses");
            /// ```
            pub fn retry_statuses(self, statuses: impl IntoIterator<Item = ::http::StatusCode>) -> Self {
                self.rule(|settings| settings.retry_statuses = statuses.into_iter().collect())
            }

            /// Generates an `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header) for each request, except
            /// CONNECT, that has neither a key nor an idempotent method. The request may then be resent like an
            /// idempotent one.
            ///
            /// Use it only with servers that honour the key. If a server ignores the key, a resent POST may act twice.
            /// The closure must return a new key for every request, such as a random UUID. This layer's attempts of a
            /// request all have the same key. A hedge layer still hedges such a request only if `hedge_unsafe_if`
            /// allows it. Only a layer in [`Mode::On`](crate::Mode::On) generates keys.
            ///
            /// # Default
            ///
            /// No request gets a key.
            ///
            /// ```
            /// use bytes::Bytes;
            /// use http::{Request, Response};
            /// use http_body_util::Empty;
            /// use tower::{BoxError, Layer, ServiceExt, service_fn};
            #[doc = concat!("use ", $krate, "::", stringify!($layer), ";")]
            /// # fn random_uuid() -> http::HeaderValue { http::HeaderValue::from_static("8e03978e-40d5-43dd-bc93-6894a57f9324") }
            ///
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
            #[doc = concat!("let layer = ", stringify!($layer), "::builder()")]
            ///     .http()
            ///     .generate_idempotency_key(random_uuid)
            ///     .build()?;
            ///
            /// let echo = service_fn(|request: Request<_>| async move {
            ///     let mut response = Response::new(String::new());
            ///     *response.headers_mut() = request.headers().clone();
            ///     Ok::<_, BoxError>(response)
            /// });
            /// let post = Request::post("/orders").body(Empty::<Bytes>::new())?;
            /// let response = layer.layer(echo).oneshot(post).await?;
            /// assert_eq!(response.headers()["idempotency-key"], random_uuid());
            /// # Ok(())
            /// # }
            /// ```
            pub fn generate_idempotency_key(
                self,
                generate: impl Fn() -> ::http::HeaderValue + Send + Sync + 'static,
            ) -> Self {
                self.rule(|settings| settings.generate_key = Some(::std::sync::Arc::new(generate)))
            }
        }

        #[cfg(feature = "grpc")]
        impl<O, $($x),+> $builder<$crate::Grpc, O, $($x),+> {
            /// The full names of methods that are idempotent, such as `/helloworld.Greeter/SayHello`. The leading slash
            /// is optional.
            ///
            /// A retry layer also retries calls of these methods after UNAVAILABLE, a broken connection or a timeout of
            /// the attempt. A hedge layer hedges only calls that are declared idempotent.
            /// [`idempotent_if`](Self::idempotent_if) declares further methods with a closure.
            ///
            /// # Default
            ///
            /// None.
            ///
            /// # Errors
            ///
            /// `build` rejects an empty list. It also rejects a hedge layer with neither this setting nor
            /// `idempotent_if`.
            ///
            /// ```
            #[doc = concat!("use ", $krate, "::", stringify!($layer), ";")]
            ///
            #[doc = concat!("let builder = ", stringify!($layer), "::builder().grpc();")]
            /// assert!(builder.clone().idempotent_methods(["/helloworld.Greeter/SayHello"]).build().is_ok());
            /// let error = builder.idempotent_methods([""; 0]).build().unwrap_err();
            /// assert_eq!(error.field(), "idempotent_methods");
            /// ```
            pub fn idempotent_methods<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
                self.rule(|settings| settings.idempotent_methods(names))
            }
        }
    };
}
