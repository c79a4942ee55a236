use std::sync::Arc;

use super::{
    ConnectError,
    call::Call,
    failure::Failure,
    key::Tag,
    link::{Connect, Link, Patience, Work},
    reply::Numbers,
    target::{Kind, Target},
    wire::Dialer,
};
use crate::backend::BoxFuture;

/// Which server is asked.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// The only one, or the one that is primary now.
    One(Link),
}

/// Decisions on one request, in the order of its charges.
pub(super) type Answers = BoxFuture<'static, Result<Numbers, Failure>>;

impl Route {
    pub(super) async fn open(
        target: Target,
        dialer: Dialer,
        patience: Patience,
    ) -> Result<Self, ConnectError> {
        let connect: Connect = match target.kind {
            Kind::Standalone => {
                let Some(address) = target.addresses.into_iter().next() else {
                    return Err(ConnectError::new("the URL of a Redis server", "names no host"));
                };
                Arc::new(move || {
                    let (dialer, address) = (dialer.clone(), address.clone());
                    Box::pin(async move { dialer.dial(&address).await })
                })
            }
            Kind::Sentinel(_) | Kind::Cluster => todo!(),
        };
        Ok(Self::One(Link::new(connect, patience).await?))
    }

    /// Sends a call; what it returns then is to be awaited, or dropped.
    pub(super) fn send(&self, call: Call) -> Result<Answers, Failure> {
        match self {
            Self::One(link) => {
                let pending = link.send(Work::Decide { call, slot: 0, asking: false })?;
                Ok(Box::pin(pending.answer()))
            }
        }
    }

    /// Deletes a key of this tag.
    pub(super) fn forget(&self, key: Vec<u8>, _: &Tag) -> Result<Answers, Failure> {
        let mut command = redis::cmd("DEL");
        command.arg(key);
        match self {
            Self::One(link) => {
                let pending = link.send(Work::Command { command, asking: false })?;
                Ok(Box::pin(pending.answer()))
            }
        }
    }
}
