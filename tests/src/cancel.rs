use futures_util::FutureExt;
use tokio::task::yield_now;

/// Polls each future once and drops it, immediately or after other tasks have run up to three times. Returns the
/// outputs of the futures that were ready.
pub async fn cancel_each<F: Future + Unpin>(
    futures: impl IntoIterator<Item = F>,
) -> Vec<F::Output> {
    let mut outputs = Vec::new();
    for (number, mut future) in futures.into_iter().enumerate() {
        outputs.extend((&mut future).now_or_never());
        for _ in 0..number % 4 {
            yield_now().await;
        }
    }
    outputs
}
