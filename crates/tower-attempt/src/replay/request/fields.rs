use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The header fields of a request that is seldom sent again.
///
/// A list takes one allocation, where a clone of the map takes another for its table. That is made
/// anew for a copy that is sent.
#[derive(Clone, Debug)]
pub(super) struct Fields(Vec<(HeaderName, HeaderValue)>);

impl Fields {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut fields = Vec::with_capacity(headers.len());
        fields.extend(
            headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        Self(fields)
    }

    pub(super) fn contains(&self, name: &HeaderName) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }

    /// A map with the fields, and the values of each, in their order.
    ///
    /// `None` if it can't take them all, of which there would have to be thousands.
    pub(super) fn into_map(self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::try_with_capacity(self.0.len()).unwrap_or_default();
        for (name, value) in self.0 {
            headers.try_append(name, value).ok()?;
        }
        Some(headers)
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, AUTHORIZATION, COOKIE, HOST};

    use super::*;

    /// Several values of a name, apart from each other, a secret one, an empty one, and a name that is not
    /// well known.
    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        let own = HeaderName::from_static("x-own");
        let mut secret = HeaderValue::from_static("secret");
        secret.set_sensitive(true);
        for (name, value) in [(COOKIE, "a"), (own, "b"), (COOKIE, "c"), (HOST, "")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append(AUTHORIZATION, secret);
        headers.append(COOKIE, HeaderValue::from_static("d"));
        headers
    }

    #[test]
    fn a_map_comes_back_as_it_was() {
        let headers = headers();
        let copy = Fields::of(&headers).into_map().unwrap();
        assert_eq!(copy, headers);
        assert!(copy.iter().eq(&headers), "in another order");
        assert!(copy[AUTHORIZATION].is_sensitive());
        assert!(!copy[HOST].is_sensitive());
    }

    #[test]
    fn no_field_is_missed() {
        let (headers, none) = (headers(), HeaderMap::new());
        let fields = Fields::of(&headers);
        for name in headers.keys() {
            assert!(fields.contains(name));
        }
        assert!(!fields.contains(&ACCEPT));
        assert!(!Fields::of(&none).contains(&HOST));
        assert_eq!(Fields::of(&none).into_map(), Some(none));
    }

    /// More values than a map takes names.
    #[test]
    fn one_name_may_have_any_number_of_values() {
        let mut headers = HeaderMap::new();
        for number in 0..40_000 {
            headers.append(COOKIE, number.into());
        }
        let copy = Fields::of(&headers).into_map().unwrap();
        assert_eq!(copy, headers);
    }
}
