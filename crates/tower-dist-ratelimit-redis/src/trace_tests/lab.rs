use std::cell::RefCell;

use tests::servers::{Redis, Reply, Resp};

use crate::{
    arguments::{Arguments, row_answers},
    call::ScriptCall,
    reply::Replies,
    rows::{Place, Rows},
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
        let mut rows = Rows::default();
        let places: Vec<Place> = calls.iter().map(|call| rows.join(call.clone())).collect();
        let arguments = Arguments::of(&rows);
        let keys = arguments.number_of_keys().to_string();
        let mut command = vec![calls[0].script.lua.clone(), keys];
        arguments.keys(|key| command.push(text(key)));
        arguments.asks(|ask| command.push(text(ask)));
        command.push(now.to_string());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let numbers = self.eval(&command);
        let row_answers = row_answers(&rows, &numbers).unwrap();
        let replies = places
            .iter()
            .map(|place| row_answers[place.row].replies(place.rank));
        replies.collect()
    }
}
