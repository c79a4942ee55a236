use crate::{Quota, backend::BoxFuture, key::RequestHead};

type Now = dyn Fn(RequestHead<'_>) -> Option<Quota> + Send + Sync;
type Later = dyn Fn(RequestHead<'_>) -> BoxFuture<'static, Option<Quota>> + Send + Sync;

/// Where a key's quota comes from, if not from the policy.
pub(crate) enum Dynamic {
    Now(Box<Now>),
    Later(Box<Later>),
}
