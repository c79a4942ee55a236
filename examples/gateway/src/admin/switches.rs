//! The switches of the page: the layers' modes, and faults of the built-in upstream and of the Redis server of
//! `--backend redis`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tower_hedge_latency::HedgeHandle;
use tower_jitter_retry::{Mode, RetryHandle};

use super::Admin;
use super::guard::SameOrigin;
use crate::options::StackOptions;
use crate::redis_server::RedisServer;
use crate::stack::LimitMode;
use crate::upstream::{Fault, Faults};

/// Everything that the page can change, and what it shows of the options.
pub(crate) struct Switches {
    pub(crate) backend: &'static str,
    pub(crate) stack: StackOptions,
    /// No request passes through the layers.
    pub(crate) bare: bool,
    pub(crate) limit: LimitMode,
    pub(crate) retry: RetryHandle,
    pub(crate) hedge: HedgeHandle,
    /// `None` with an upstream of the user.
    pub(crate) faults: Option<Faults>,
    /// `None` unless the gateway started its own Redis server.
    pub(crate) redis: Option<Mutex<RedisServer>>,
}

/// One change, as the page posts it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Switch {
    Limit(Setting),
    Retry(Setting),
    Hedge(Setting),
    Fault { fault: Fault, on: bool },
    Redis(Action),
}

/// The mode of a layer.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Setting {
    On,
    Shadow,
    Off,
}

/// A fault of the Redis server, or its end.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Action {
    Kill,
    Freeze,
    /// Also ends a freeze.
    Restart,
}

impl From<Setting> for Mode {
    fn from(setting: Setting) -> Self {
        match setting {
            Setting::On => Self::On,
            Setting::Shadow => Self::Shadow,
            Setting::Off => Self::Off,
        }
    }
}

impl From<Mode> for Setting {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::On => Self::On,
            Mode::Shadow => Self::Shadow,
            _ => Self::Off,
        }
    }
}

/// Applies a change to the running layers.
pub(super) async fn switch(
    State(admin): State<Admin>,
    SameOrigin(switch): SameOrigin<Switch>,
) -> Response {
    let switches = &*admin.switches;
    match switch {
        Switch::Limit(_) | Switch::Retry(_) | Switch::Hedge(_) if switches.bare => {
            return absent("start the gateway without --bare to use the layers");
        }
        Switch::Limit(setting) => switches.limit.set(setting.into()),
        Switch::Retry(setting) => switches.retry.set_mode(setting.into()),
        Switch::Hedge(setting) => switches.hedge.set_mode(setting.into()),
        Switch::Fault { fault, on } => match &switches.faults {
            Some(faults) => faults.set(fault, on),
            None => return absent("the gateway forwards to your own upstream"),
        },
        Switch::Redis(action) => {
            let Some(redis) = &switches.redis else {
                return absent("start the gateway with --backend redis, without a URL");
            };
            let mut redis = redis.lock().await;
            let done = match action {
                Action::Kill => redis.kill().await,
                Action::Freeze => redis.freeze().await,
                Action::Restart => redis.restart().await,
            };
            if let Err(error) = done {
                return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response();
            }
        }
    }
    StatusCode::NO_CONTENT.into_response()
}

fn absent(why: &str) -> Response {
    (StatusCode::CONFLICT, format!("{why}\n")).into_response()
}
