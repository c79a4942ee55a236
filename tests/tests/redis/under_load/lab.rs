use tests::servers::{Proxy, Redis, Reply, Resp};

/// A server for faults.
pub(super) struct Lab {
    pub(super) server: Redis,
    /// A proxy in front of the server.
    pub(super) proxy: Option<Proxy>,
    /// A server that can become the primary of this one.
    other: Option<Redis>,
    /// A connection for use while the server accepts no further connections.
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

    /// Makes the server a replica of another, empty server. The copy would begin after an hour, so the counts stay.
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

    /// Closes all connections, and blocks new ones with the only connection that the server allows.
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

    /// Replaces every value with garbage: another type, or text that is no number.
    pub(super) fn litter(&mut self) {
        for (number, key) in self.server.keys().into_iter().enumerate() {
            self.server.call(&["DEL", &key]);
            // If the load writes in between, its value stays.
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
