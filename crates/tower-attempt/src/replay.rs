#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod error;
#[cfg(feature = "http")]
mod frame;
#[cfg(feature = "http")]
mod polling;
#[cfg(feature = "http")]
mod reader;
#[cfg(feature = "http")]
mod readers;
#[cfg(feature = "http")]
mod record;
#[cfg(feature = "http")]
mod recording;
#[cfg(feature = "http")]
mod replay_body;
#[cfg(feature = "http")]
mod request;
#[cfg(feature = "http")]
mod tape;
#[cfg(feature = "http")]
mod unread;
#[cfg(feature = "http")]
mod wakers;

#[cfg(feature = "http")]
pub use self::body::ReplayableBody;
#[cfg(feature = "http")]
pub use self::error::{Interrupted, ReplayError};
#[cfg(feature = "http")]
use self::recording::Recording;
#[cfg(feature = "http")]
pub use self::replay_body::ReplayBody;
#[cfg(feature = "http")]
pub use self::request::ReplayableRequest;
