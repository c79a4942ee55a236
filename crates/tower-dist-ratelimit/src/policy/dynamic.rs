use crate::{Quota, backend::BoxFuture, key::RequestParts};

type Now = dyn Fn(RequestParts<'_>) -> Option<Quota> + Send + Sync;
type Later = dyn Fn(RequestParts<'_>) -> BoxFuture<'static, Option<Quota>> + Send + Sync;

/// Where a key's quota comes from, if not from the policy.
pub(crate) enum Dynamic {
    Now(Box<Now>),
    Later(Box<Later>),
}
