//! Chromium without a window, driven over the DevTools protocol.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// One open page. The browser ends when it is dropped.
pub(crate) struct Tab {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    last_id: u64,
    errors: Vec<String>,
    _browser: Child,
    _profile: TempDir,
}

impl Tab {
    pub(crate) async fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let mut browser = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--remote-debugging-port=0", "--window-size=1200,1000"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(browser.stderr.take().unwrap()).lines();
        let address = timeout(Duration::from_secs(60), async {
            loop {
                let line = lines
                    .next_line()
                    .await
                    .unwrap()
                    .expect("the browser has ended");
                if let Some(address) = line.strip_prefix("DevTools listening on ") {
                    return address.to_owned();
                }
            }
        });
        let address = address.await.unwrap();
        // The browser blocks if its log is not read.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let (socket, _) = connect_async(address).await.unwrap();
        let mut tab = Self {
            socket,
            session: String::new(),
            last_id: 0,
            errors: Vec::new(),
            _browser: browser,
            _profile: profile,
        };
        let target = tab
            .call("Target.createTarget", json!({ "url": "about:blank" }))
            .await;
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = tab.call("Target.attachToTarget", target).await;
        attached["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut tab.session);
        tab.call("Runtime.enable", json!({})).await;
        tab.call("Log.enable", json!({})).await;
        tab.call("Page.enable", json!({})).await;
        tab.call("Page.navigate", json!({ "url": url })).await;
        tab
    }

    /// Messages of the console and uncaught exceptions.
    pub(crate) fn errors(&self) -> &[String] {
        &self.errors
    }

    /// The value of a JavaScript expression.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let outcome = self.call("Runtime.evaluate", parameters).await;
        // An element that is not there yet is an exception, and no value.
        outcome["result"]["value"].clone()
    }

    /// The screen of a phone.
    pub(crate) async fn narrow(&mut self) {
        let phone = json!({ "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true });
        self.call("Emulation.setDeviceMetricsOverride", phone).await;
    }

    /// The theme of the visitor's system: `light` or `dark`.
    pub(crate) async fn prefer(&mut self, theme: &str) {
        let theme = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.call("Emulation.setEmulatedMedia", theme).await;
    }

    /// A picture of the whole page as PNG.
    pub(crate) async fn screenshot(&mut self) -> Vec<u8> {
        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", whole).await;
        BASE64_STANDARD
            .decode(picture["data"].as_str().unwrap())
            .unwrap()
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.socket
            .send(Message::text(request.to_string()))
            .await
            .unwrap();
        loop {
            let message = timeout(Duration::from_secs(60), self.socket.next()).await;
            let message = message.unwrap().unwrap().unwrap();
            let Message::Text(text) = message else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            self.note(&message);
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let is_error = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => parameters["type"] == "error",
            Some("Log.entryAdded") => parameters["entry"]["level"] == "error",
            _ => false,
        };
        if is_error {
            self.errors.push(parameters.to_string());
        }
    }
}
