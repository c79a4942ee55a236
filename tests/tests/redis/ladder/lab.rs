use tests::servers::{Proxy, Redis, Reply, Resp};

/// A server that something happens to.
pub(super) struct Lab {
    pub(super) server: Redis,
    /// In front of it.
    pub(super) proxy: Option<Proxy>,
    /// One that it can be made a replica of.
    other: Option<Redis>,
    /// To be used while it takes no more connections.
    control: Option<Resp>,
}

impl Lab {
    pub(super) fn start() -> Self {
        Self {
            server: Redis::start(),
            proxy: None,
            other: None,
            control: None,
        }
    }

    pub(super) fn ping(&mut self) {
        self.server.call(&["PING"]);
    }

    pub(super) fn set(&self, setting: &str, value: &str) {
        self.server.call(&["CONFIG", "SET", setting, value]);
    }

    /// Copies another, empty server from now on; which begins after an hour, so that it still has what it counted.
    pub(super) fn replicate(&mut self) {
        let later = [
            "--repl-diskless-sync",
            "yes",
            "--repl-diskless-sync-delay",
            "3600",
        ];
        let other = Redis::with(&later);
        let port = other.port().to_string();
        self.server.call(&["REPLICAOF", "127.0.0.1", &port]);
        self.other = Some(other);
    }

    /// Closes all connections but one, which has taken the only place.
    pub(super) fn shut_out(&mut self) {
        let mut control = Resp::connect(self.server.port()).unwrap();
        for command in [
            &["CONFIG", "SET", "maxclients", "1"][..],
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        ] {
            let reply = control.call(command).unwrap();
            assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
        }
        self.control = Some(control);
    }

    pub(super) fn let_in(&mut self) {
        let mut control = self.control.take().unwrap();
        let set = ["CONFIG", "SET", "maxclients", "100"];
        assert_eq!(control.call(&set).unwrap().text(), "OK");
    }

    /// Puts what makes no sense in the place of all that is kept: of another type, or no number.
    pub(super) fn litter(&mut self) {
        for (number, key) in self.server.keys().into_iter().enumerate() {
            self.server.call(&["DEL", &key]);
            // Somebody may have written in between, and then it stays.
            let mut resp = Resp::connect(self.server.port()).unwrap();
            let garbage: &[&str] = match number % 3 {
                0 => &["SET", &key, "garbage"],
                1 => &["HSETNX", &key, "field", "value"],
                _ => &["RPUSH", &key, "x", "y"],
            };
            resp.call(garbage).unwrap();
        }
    }
}
