//! Headers of any bytes.

use futures_util::FutureExt;
use http::HeaderValue;
use proptest::prelude::*;
use tower_dist_ratelimit::Quota;

use super::*;

/// Any valid header bytes, often with the form of credentials.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'\t'), b' '..127, 128..=255_u8];
    let bytes = prop::collection::vec(byte, 0..200);
    let scheme = prop::sample::select(vec!["", "Bearer ", "bEARER  ", "Bearer", "Basic "]);
    (scheme, bytes).prop_map(|(scheme, bytes)| [scheme.as_bytes(), &bytes].concat())
}

fn status(service: &mut RateLimit<Probe>, value: &[u8]) -> StatusCode {
    let mut request = get();
    let value = HeaderValue::from_bytes(value).unwrap();
    request.headers_mut().insert("authorization", value);
    let response = send(service, request).now_or_never();
    response.expect("a memory waits for nobody").status()
}

proptest! {
    #[test]
    fn headers_of_the_same_bytes_are_one_client_and_of_others_another(one in value(), other in value()) {
        let policy = || Policy::new("p", Quota::per_day(1));
        let mut by_header = service(policy().by(key::header("authorization")));
        prop_assert_eq!(status(&mut by_header, &one), OK);
        prop_assert_eq!(status(&mut by_header, &other) == OK, one != other);
        prop_assert_eq!(status(&mut by_header, &one), StatusCode::TOO_MANY_REQUESTS);

        let mut by_token = service(policy().by(key::bearer()));
        prop_assert_eq!(status(&mut by_token, &one), OK);
        prop_assert_eq!(status(&mut by_token, &one), StatusCode::TOO_MANY_REQUESTS);
        status(&mut by_token, &other);
    }
}
