use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

/// The least that a frame, or a field of the trailers, counts against the limit, in bytes.
///
/// Twice the size of an entry, because the list doubles when it grows. So a record takes at most twice the memory that
/// the limit says, however small its frames are.
const MIN_COST: usize = 2 * size_of::<Recorded>();

/// A frame that can be given to several readers.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    Data(Bytes),
    /// Boxed, since there is one at most in many frames of data.
    Trailers(Box<HeaderMap>),
}

impl Recorded {
    /// Gives the frame back if it is of a kind that is not known.
    pub(super) fn new(frame: Frame<Bytes>) -> Result<Self, Frame<Bytes>> {
        frame.into_data().map(Self::Data).or_else(|frame| {
            let trailers = frame.into_trailers()?;
            Ok(Self::Trailers(Box::new(trailers)))
        })
    }

    pub(super) fn into_frame(self) -> Frame<Bytes> {
        match self {
            Self::Data(data) => Frame::data(data),
            Self::Trailers(trailers) => Frame::trailers(*trailers),
        }
    }

    /// How much of the limit it takes, in bytes.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Data(data) => data.len().max(MIN_COST),
            Self::Trailers(trailers) => trailers.iter().fold(MIN_COST, |sum, (name, value)| {
                let field = name.as_str().len().saturating_add(value.len());
                sum.saturating_add(field.max(MIN_COST))
            }),
        }
    }
}
