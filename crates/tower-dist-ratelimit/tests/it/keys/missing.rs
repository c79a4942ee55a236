//! Requests that have no key.

use super::*;

#[tokio::test(start_paused = true)]
async fn requests_without_the_key_share_a_bucket_by_default() {
    let mut service = service(Policy::new("each", slow(1)).by(key::header("key")));
    assert_eq!(send(&mut service, get()).await.status(), OK);
    assert_eq!(send(&mut service, get()).await.status(), REFUSED);
    assert_eq!(
        send(&mut service, from("")).await.status(),
        OK,
        "an empty key is a key"
    );
}

#[tokio::test(start_paused = true)]
async fn a_policy_can_skip_requests_without_the_key() {
    let policy = Policy::new("each", slow(1))
        .by(key::header("key"))
        .missing_key(MissingKey::Skip);
    let mut service = service(policy);
    for _ in 0..3 {
        let response = send(&mut service, get()).await;
        assert_eq!(
            (response.status(), field(&response, "ratelimit")),
            (OK, None)
        );
    }
    send(&mut service, from("a")).await;
    assert_eq!(send(&mut service, from("a")).await.status(), REFUSED);
}

#[tokio::test(start_paused = true)]
async fn a_policy_can_reject_requests_without_the_key_and_charges_no_key() {
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", slow(1)))
        .limit(
            Policy::new("each", slow(1))
                .by(key::header("key"))
                .missing_key(MissingKey::Reject),
        )
        .build()
        .unwrap()
        .layer(Probe::default());
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(field(&response, "retry-after"), None);
    assert_eq!(
        &response.body()[..],
        br#"{"type":"about:blank","title":"Bad Request","status":400}"#
    );
    assert_eq!(send(&mut service, from("a")).await.status(), OK);
}

/// An extractor that finds no key, with a hint of several lines.
struct Multiline;

const HINT: &str = "100% missing:\n\t\"clé\" \\ \u{1}\u{7f}";

impl KeyExtractor for Multiline {
    fn extract(&self, _: RequestParts<'_>, _: &mut KeySink) -> Option<()> {
        None
    }

    fn hint(&self) -> Option<&'static str> {
        Some(HINT)
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_of_any_characters_reaches_the_client_as_json_and_as_a_grpc_message() {
    let builder = || {
        let policy = Policy::new("each", slow(1)).by(Multiline);
        RateLimitLayer::builder(Memory::default()).limit(policy)
    };
    let mut service = builder().build().unwrap().layer(Probe::default());
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["detail"], HINT);

    let mut service = builder().grpc().build().unwrap().layer(Probe::default());
    let response = send(&mut service, get()).await;
    let message = r#"100%25 missing:%0A%09"cl%C3%A9" \ %01%7F"#;
    assert_eq!(field(&response, "grpc-message"), Some(message));
}
