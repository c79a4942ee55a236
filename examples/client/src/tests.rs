use super::*;

async fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, upstream::unreliable()).into_future());
    url
}

#[tokio::test]
async fn what_is_busy_or_stalls_at_first_is_repeated_and_what_is_broken_comes_back() {
    let url = serve().await;
    for (path, expected) in [
        ("busy", StatusCode::OK),
        ("stalls", StatusCode::OK),
        ("broken", StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        let uri = format!("{url}/{path}").parse().unwrap();
        assert_eq!(get(uri).await.unwrap(), expected, "{path}");
    }
}

#[tokio::test]
async fn a_body_that_streams_is_sent_again_whole() {
    let url = serve().await;
    assert_eq!(
        post(&format!("{url}/upload")).await.unwrap(),
        StatusCode::OK
    );
}
