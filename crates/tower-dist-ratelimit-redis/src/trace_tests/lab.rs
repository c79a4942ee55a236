use std::{cell::RefCell, sync::Arc};

use futures_util::FutureExt;
use tests::servers::{Redis, Reply, Resp};
use tower_dist_ratelimit::backend::toolkit::Health;

use crate::{
    arguments::{Arguments, row_answers},
    batch::{Batch, PendingReply},
    call::ScriptCall,
    reply::Replies,
};

/// A server for the tests of this thread, and a connection to it.
pub(super) struct Lab {
    _server: Redis,
    resp: RefCell<Resp>,
}

impl Lab {
    pub(super) fn new() -> Self {
        let server = Redis::start();
        let resp = RefCell::new(Resp::connect(server.port()).unwrap());
        Self {
            _server: server,
            resp,
        }
    }

    fn call(&self, command: &[&str]) -> Reply {
        self.resp.borrow_mut().call(command).unwrap()
    }

    /// Runs a script, and returns its numbers. `command` has the script and its arguments.
    pub(super) fn eval(&self, command: &[&str]) -> Vec<i64> {
        let command = [&["EVAL"], command].concat();
        let Reply::List(numbers) = self.call(&command) else {
            panic!("{:?}", self.call(&command));
        };
        let number = |number| match number {
            Reply::Int(number) => number,
            other => panic!("{other:?}"),
        };
        numbers.into_iter().map(number).collect()
    }

    /// Forgets all keys.
    pub(super) fn clear(&self) {
        self.call(&["FLUSHALL"]);
    }

    /// Runs one script for all `calls` together at the time `now`, and returns the replies to each call.
    pub(super) fn run(&self, now: u64, calls: &[ScriptCall]) -> Vec<Replies> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let batch = Arc::new(Batch::new(Arc::default(), Arc::new(Health::up())));
        let join = |call: &ScriptCall| batch.join(call.clone()).0;
        let asked: Vec<PendingReply> = calls.iter().map(join).collect();
        let batch = batch.close();
        let arguments = Arguments::of(&batch.rows);
        let keys = arguments.number_of_keys().to_string();
        let mut command = vec![calls[0].script.lua.clone(), keys];
        arguments.keys(|key| command.push(text(key)));
        arguments.asks(|ask| command.push(text(ask)));
        command.push(now.to_string());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let numbers = self.eval(&command);
        let row_answers = row_answers(&batch.rows, &numbers).unwrap();
        batch.answer(Ok(row_answers)).now_or_never();
        let replies = asked.into_iter().map(|reply| reply.now_or_never());
        replies.map(|reply| reply.unwrap().unwrap()).collect()
    }
}
