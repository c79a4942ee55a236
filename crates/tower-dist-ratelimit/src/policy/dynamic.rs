use std::sync::Arc;

use crate::{Quota, backend::BoxFuture, key::RequestParts};

type Now = dyn Fn(RequestParts<'_>) -> Option<Quota> + Send + Sync;
type Later = dyn Fn(RequestParts<'_>) -> BoxFuture<'static, Option<Quota>> + Send + Sync;

/// Where a key's quota comes from, if not from the policy.
#[derive(Clone)]
pub(crate) enum Dynamic {
    Now(Arc<Now>),
    Later(Arc<Later>),
}
