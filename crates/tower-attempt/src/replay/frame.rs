use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

/// Minimum cost of a frame, or of a field of the trailers, in bytes. Costs count against the limit of a record.
///
/// This is twice the size of an entry in the list of frames, because a list that doubles when it grows can be half
/// empty. So, however small the frames within the limit are, their list takes at most about the limit in memory. Their
/// data takes at most the limit again. A frame that is a slice of a larger buffer also keeps that buffer.
const MIN_COST: usize = 2 * size_of::<Recorded>();

/// A frame that several readers can receive.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    Data(Bytes),
    /// Boxed to keep data frames small in memory.
    Trailers(Box<HeaderMap>),
}

impl Recorded {
    /// Returns the frame as an error if its kind is unknown.
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

    /// The cost of the frame, in bytes. It counts against the limit of the record.
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
