use http::{HeaderName, HeaderValue, Response, header::CONTENT_TYPE};

use super::{GrpcCode, STATUS};
use crate::Elapsed;

const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Makes a response with the `grpc-status` DEADLINE_EXCEEDED and a default body.
pub(crate) fn deadline_exceeded<B: Default>(elapsed: Elapsed) -> Response<B> {
    let mut response = Response::new(B::default());
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    fields.insert(STATUS, (GrpcCode::DeadlineExceeded as u16).into());
    // The letter µ of microseconds is the only character that would need percent-encoding.
    let text = elapsed.to_string().replace('µ', "u");
    if let Ok(text) = HeaderValue::try_from(text) {
        fields.insert(MESSAGE, text);
    }
    response
}
