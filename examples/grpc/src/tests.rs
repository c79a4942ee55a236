use super::*;

use std::sync::Arc;

/// A greeter that answers call n, counted from 0, with `script(n)`.
struct Scripted<F> {
    calls: Arc<AtomicU32>,
    script: F,
}

impl<F, R> Greeter for Scripted<F>
where
    F: Fn(u32) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Status>> + Send,
{
    async fn greet(&self, name: String) -> Result<String, Status> {
        (self.script)(self.calls.fetch_add(1, Ordering::Relaxed)).await?;
        Ok(name)
    }
}

/// A client of the greeter, and the number of calls that reached the greeter.
async fn before<F, R>(script: F) -> (GreeterClient<Outbound>, Arc<AtomicU32>)
where
    F: Fn(u32) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Status>> + Send + 'static,
{
    let calls = Arc::new(AtomicU32::new(0));
    let scripted = Scripted {
        calls: Arc::clone(&calls),
        script,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { serve(scripted, listener).await.unwrap() });
    (client(addr).await.unwrap(), calls)
}

#[tokio::test]
async fn an_unavailable_call_is_retried() {
    let (mut client, calls) = before(async |call| match call {
        0 => Err(Status::unavailable("not now")),
        _ => Ok(()),
    })
    .await;
    let greeting = client.greet("ada").await.unwrap();
    assert_eq!(greeting.get_ref().text, "ada");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_slow_answer_is_overtaken() {
    let (mut client, calls) = before(async |call| {
        if call == 0 {
            std::future::pending::<()>().await;
        }
        Ok(())
    })
    .await;
    client.greet("ada").await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_rejected_call_is_retried_after_the_servers_pushback() {
    let (mut client, calls) = before(async |_| Ok(())).await;
    let start = Instant::now();
    for _ in 0..14 {
        client.greet("ada").await.unwrap();
    }
    // A burst of ten, then one call every hundredth of a second.
    assert!(start.elapsed() >= Duration::from_millis(4 * 10 - 1));
    assert_eq!(calls.load(Ordering::Relaxed), 14);
}
