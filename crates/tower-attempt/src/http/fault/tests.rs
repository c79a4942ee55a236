use std::fmt;
use std::time::Duration;

use super::*;

fn fault<E: 'static>(error: &E) -> Fault {
    Fault::of(error, false)
}

type BoxError = Box<dyn Error + Send + Sync>;

/// An unknown error around another error.
#[derive(Debug)]
struct Wrapped(BoxError);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// An error that is its own source.
#[derive(Debug)]
struct Ring;

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ring")
    }
}

impl Error for Ring {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self)
    }
}

fn refused() -> io::Error {
    io::ErrorKind::ConnectionRefused.into()
}

#[test]
fn a_refused_connection_is_found_however_deep_it_lies() {
    assert_eq!(fault(&refused()), Fault::NotConnected);
    let boxed: BoxError = refused().into();
    assert_eq!(fault(&boxed), Fault::NotConnected);
    let boxed: BoxError = Wrapped(Wrapped(refused().into()).into()).into();
    assert_eq!(fault(&boxed), Fault::NotConnected);
    // Inside an `io::Error` of another kind.
    let other = io::Error::other(Wrapped(refused().into()));
    assert_eq!(fault(&other), Fault::NotConnected);
    assert_eq!(fault(&io::Error::other(refused())), Fault::NotConnected);
}

#[cfg(feature = "hyper-util-01")]
/// The pool hands out the connection just before the server's close arrives.
#[tokio::test]
async fn a_request_that_a_stale_connection_never_wrote_is_unprocessed() {
    let (client, server) = tokio::io::duplex(1024);
    let io = hyper_util::rt::TokioIo::new(client);
    let (mut sender, connection) = ::hyper::client::conn::http1::handshake(io).await.unwrap();
    let request = http::Request::post("/").body(String::from("order"));
    let response = sender.send_request(request.unwrap());
    drop(server);
    connection.await.ok();
    let error = response.await.unwrap_err();
    assert_eq!(fault(&error), Fault::Unprocessed, "{error:?}");
    assert_eq!(Fault::of(&error, true), Fault::Disconnected);
}

#[test]
fn a_client_that_follows_redirects_proves_nothing() {
    assert_eq!(Fault::of(&refused(), true), Fault::Disconnected);
}

#[test]
fn an_error_that_may_follow_sending_is_no_proof() {
    for kind in [
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::UnexpectedEof,
    ] {
        assert_eq!(fault(&io::Error::from(kind)), Fault::Disconnected);
    }
    for kind in [
        io::ErrorKind::TimedOut,
        io::ErrorKind::HostUnreachable,
        io::ErrorKind::Other,
    ] {
        assert_eq!(fault(&io::Error::from(kind)), Fault::Unknown);
    }
}

#[test]
fn an_error_of_an_unknown_type_proves_nothing() {
    assert_eq!(fault(&"reset"), Fault::Unknown);
    assert_eq!(fault(&Wrapped(refused().into())), Fault::Unknown);
    let boxed: BoxError = Ring.into();
    assert_eq!(fault(&boxed), Fault::Unknown);
}

#[test]
fn an_interrupted_body_is_a_local_fault() {
    let boxed: BoxError = Wrapped(Interrupted.into()).into();
    assert_eq!(fault(&boxed), Fault::Local);
}

#[test]
fn a_rejection_by_a_layer_is_found_even_if_the_client_follows_redirects() {
    let rejected = Rejected::new(Some(Duration::from_secs(1)));
    let boxed: BoxError = Wrapped(rejected.into()).into();
    assert_eq!(fault(&boxed), Fault::Rejected(rejected));
    // The layer rejected the request before a client could follow a redirect.
    assert_eq!(Fault::of(&boxed, true), Fault::Rejected(rejected));
}
