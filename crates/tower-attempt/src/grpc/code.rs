use http::{HeaderValue, StatusCode};

use crate::http::trimmed;

macro_rules! codes {
    ($($code:ident = $number:literal,)*) => {
        /// A gRPC status code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "gRPC's specification defines them")]
        pub enum GrpcCode {
            $($code = $number,)*
        }

        /// The codes, indexed by number.
        const ALL: [GrpcCode; 17] = [$(GrpcCode::$code,)*];
    };
}

codes! {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl GrpcCode {
    /// Parses a `grpc-status` field. Any value other than 0 to 16 is UNKNOWN.
    pub(super) fn parse(status: &HeaderValue) -> Self {
        let number = match trimmed(status) {
            [ones @ b'0'..=b'9'] => usize::from(ones - b'0'),
            [b'1', ones @ b'0'..=b'6'] => usize::from(10 + ones - b'0'),
            _ => return Self::Unknown,
        };
        ALL[number]
    }

    /// Maps the HTTP status of a response without a gRPC status ("HTTP to gRPC Status Code Mapping").
    pub(super) fn of_http(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_REQUEST => Self::Internal,
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::FORBIDDEN => Self::PermissionDenied,
            StatusCode::NOT_FOUND => Self::Unimplemented,
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_code_is_read_as_it_is_written() {
        for (number, code) in ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number);
            let field = HeaderValue::from(code as u16);
            assert_eq!(field, number.to_string().as_str());
            assert_eq!(GrpcCode::parse(&field), code);
            let padded = HeaderValue::try_from(format!(" {number}\t")).unwrap();
            assert_eq!(GrpcCode::parse(&padded), code);
        }
    }

    proptest! {
        #[test]
        fn anything_else_is_unknown(bytes in any::<Vec<u8>>()) {
            let Ok(field) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
            let bytes = bytes.trim_ascii();
            let number = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
            let code = match number {
                Some(number @ 0..=16) if number.to_string().as_bytes() == bytes => ALL[number],
                _ => GrpcCode::Unknown,
            };
            prop_assert_eq!(GrpcCode::parse(&field), code);
        }
    }
}
