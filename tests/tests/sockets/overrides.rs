//! Requests that differ from their layer's settings, through the extensions of HTTP and gRPC requests.

use tower_hedge_latency::{HedgeLayer, HedgeOverride};
use tower_jitter_retry::{Backoff, RetryLayer, RetryOverride};

use super::*;

/// The number of requests that reach a server which fails, or does not answer, the first four.
async fn requests<T: Clone + Send + Sync + 'static>(answer: Option<u16>, own: T) -> usize {
    let answers: [fn(usize) -> Option<u16>; 2] = [
        |n| Some(if n <= 4 { 503 } else { 200 }),
        |n| (n > 4).then_some(200),
    ];
    let server = Server::start(answers[usize::from(answer.is_none())]).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::get(&server.url).extension(own);
    let request = request.body(Full::default()).unwrap();
    match answer {
        Some(_) => retry().layer(client).oneshot(request).await.unwrap(),
        None => hedge().layer(client).oneshot(request).await.unwrap(),
    };
    server.requests()
}

#[tokio::test]
async fn an_http_request_chooses_its_attempts_and_hedges() {
    let failing = Some(503);
    assert_eq!(requests(failing, ()).await, 3);
    assert_eq!(requests(failing, RetryOverride::disabled()).await, 1);
    let five = RetryOverride::new().max_attempts(5);
    assert_eq!(requests(failing, five).await, 5);
    // Only the fifth request is answered.
    let four = HedgeOverride::new().max_hedges(4);
    assert_eq!(requests(None, four).await, 5);
    let four = four.delay(Duration::ZERO);
    assert_eq!(requests(None, four).await, 5);
}

#[tokio::test]
async fn a_grpc_call_chooses_its_attempts_and_hedges() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let greeter = greeter::Greeter::new(Arc::clone(&requests));
    let server = tonic::transport::Server::builder().add_service(greeter);
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = tonic::transport::Endpoint::from_shared(url).unwrap();
    let channel = channel.connect().await.unwrap();

    let retry = RetryLayer::builder().grpc();
    let retry = retry
        .idempotent_methods([greeter::PATH])
        .backoff(Backoff::none());
    let retry = retry.build().unwrap().layer(channel.clone());
    for (own, expected) in [
        (RetryOverride::new(), 3),
        (RetryOverride::disabled(), 1),
        (RetryOverride::new().max_attempts(5), 5),
    ] {
        let call = greeter::greet_with(retry.clone(), "busy", own);
        assert_eq!(call.await.unwrap_err().code(), tonic::Code::Unavailable);
        assert_eq!(requests.swap(0, SeqCst), expected, "{own:?}");
    }

    let hedge = HedgeLayer::builder()
        .fixed(Duration::from_secs(3600))
        .grpc();
    let hedge = hedge.idempotent_methods([greeter::PATH]);
    let hedge = hedge.build().unwrap().layer(channel);
    // Only the third request is answered.
    let own = HedgeOverride::new().delay(Duration::ZERO).max_hedges(2);
    let greeting = greeter::greet_with(hedge, "third", own).await.unwrap();
    assert_eq!(greeting, "hello, third");
    assert_eq!(requests.load(SeqCst), 3);
}
