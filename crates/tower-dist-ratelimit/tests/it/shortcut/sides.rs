use std::{fmt, sync::Arc};

use tokio::task::{AbortHandle, JoinSet, yield_now};
use tower::{Service, ServiceExt, util::BoxCloneService};
use tower_dist_ratelimit::backend::Backend;

use super::{Log, Pause, both};

/// An event that both services receive at the same time.
pub(super) trait Turn {
    type Request;

    fn pause(&self) -> Pause;

    fn request(&self) -> Self::Request;

    /// Whether the caller drops the request at the next turn.
    fn is_dropped(&self) -> bool;
}

/// One of the two services, and its requests.
struct Side<Req, Res, E> {
    service: BoxCloneService<Req, Res, E>,
    log: Log,
    tasks: JoinSet<()>,
}

impl<Req, Res, E> Side<Req, Res, E>
where
    Req: 'static,
    Res: 'static,
    E: fmt::Debug + 'static,
{
    async fn send(
        &mut self,
        request: Req,
        number: usize,
        told: fn(&Result<Res, E>) -> String,
    ) -> AbortHandle {
        let answer = self.service.ready().await.unwrap().call(request);
        let log = self.log.clone();
        self.tasks.spawn(async move {
            let outcome = answer.await;
            log.note(format_args!("{number}: {}", told(&outcome)));
        })
    }
}

/// Plays the turns on both sides and returns their logs.
pub(super) async fn run<T: Turn, Res, E>(
    room: usize,
    service: impl Fn(&Log, Arc<dyn Backend>) -> BoxCloneService<T::Request, Res, E>,
    turns: Vec<T>,
    told: fn(&Result<Res, E>) -> String,
) -> [Vec<String>; 2]
where
    T::Request: 'static,
    Res: 'static,
    E: fmt::Debug + 'static,
{
    let mut sides = both(room, |backend| {
        let log = Log::start();
        Side {
            service: service(&log, backend),
            log,
            tasks: JoinSet::new(),
        }
    });
    let mut dropped: Vec<AbortHandle> = Vec::new();
    for (number, turn) in turns.iter().enumerate() {
        turn.pause().wait(&sides[0].log).await;
        for task in dropped.drain(..) {
            task.abort();
        }
        for side in &mut sides {
            let task = side.send(turn.request(), number, told).await;
            dropped.extend(turn.is_dropped().then_some(task));
        }
        yield_now().await;
    }
    let mut logs = Vec::new();
    for mut side in sides {
        while side.tasks.join_next().await.is_some() {}
        logs.push(side.log.all());
    }
    logs.try_into().unwrap()
}
