mod body;
mod error;
mod frame;
mod reader;
mod record;
mod replay_body;
mod request;
mod wakers;

pub use self::body::ReplayableBody;
pub use self::error::{Interrupted, ReplayError};
pub use self::replay_body::ReplayBody;
pub use self::request::ReplayableRequest;
