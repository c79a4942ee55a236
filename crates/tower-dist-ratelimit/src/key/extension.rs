use std::{any::type_name, fmt, marker::PhantomData};

use super::{IntoKey, KeyExtractor, KeySink, RequestParts};

/// Something of a request's extension, from [`extension`].
pub struct Extension<T, F> {
    key: F,
    of: PhantomData<fn(&T)>,
}

/// One key per what the closure takes out of the extension of type `T`, which a layer above has put into the request;
/// without the extension there is no key.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, key};
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// Policy::new("per-user", Quota::per_second(5)).by(key::extension(|user: &User| user.id));
/// ```
#[must_use]
pub fn extension<T, F, K>(key: F) -> Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: IntoKey,
{
    Extension {
        key,
        of: PhantomData,
    }
}

impl<T, F, K> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: IntoKey,
{
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        (self.key)(head.extensions().get::<T>()?).write(sink)
    }
}

impl<T, F> fmt::Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({})", type_name::<T>())
    }
}
