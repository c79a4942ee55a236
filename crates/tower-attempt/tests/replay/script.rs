//! A source that follows a list of steps.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A frame with this number of bytes, which may be 0.
    Data(usize),
    Trailers,
    /// Pending, but woken before the poll returns.
    WakeInline,
    /// Pending until [`Control::fire`].
    Wait,
    Error,
}

/// A frame in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(_) => 0,
        }
    }

    /// The cost against the limit, as documented.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Data(data) => data.len().max(64),
            Self::Trailers(fields) => {
                let fields = fields.iter();
                let costs = fields.map(|(name, value)| (name.as_str().len() + value.len()).max(64));
                64 + costs.sum::<usize>()
            }
        }
    }

    pub(crate) fn of(frame: Frame<Bytes>) -> Self {
        match frame.into_data() {
            Ok(data) => Self::Data(data),
            Err(frame) => Self::Trailers(frame.into_trailers().unwrap()),
        }
    }
}

/// The frames that a script returns, if it does not fail.
pub(crate) fn pieces(steps: &[Step]) -> Vec<Piece> {
    let mut next = 0_u8;
    let frames = steps.iter().filter_map(|step| match step {
        Step::Data(len) => {
            next = next.wrapping_add(1);
            Some(Piece::Data(Bytes::from(vec![next; *len])))
        }
        Step::Trailers => {
            let mut fields = HeaderMap::new();
            fields.insert("checksum", "1234".parse().unwrap());
            Some(Piece::Trailers(fields))
        }
        _ => None,
    });
    frames.collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The hints that a script gives about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    pub(crate) knows_size: bool,
    pub(crate) knows_end: bool,
}

/// The progress of a script.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) frames: usize,
    pub(crate) failed: bool,
    pub(crate) ended: bool,
    pub(crate) dropped: u32,
    waiting: Option<Waker>,
    fired: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Control(Arc<Mutex<Progress>>);

impl Control {
    pub(crate) fn get<T>(&self, of: impl FnOnce(&mut Progress) -> T) -> T {
        of(&mut self.0.lock().unwrap())
    }

    /// Ends the present or next wait, but does not wake yet.
    pub(crate) fn ripen(&self) {
        self.get(|progress| progress.fired = true);
    }

    /// Ends the present or next wait. Returns the waker of the last poll.
    pub(crate) fn fire(&self) -> Option<Waker> {
        self.get(|progress| {
            progress.fired = true;
            progress.waiting.take()
        })
    }
}

pub(crate) struct Script {
    steps: VecDeque<Step>,
    pieces: VecDeque<Piece>,
    manners: Manners,
    control: Control,
}

impl Script {
    pub(crate) fn new(steps: Vec<Step>, manners: Manners) -> (Self, Control) {
        let control = Control::default();
        let script = Self {
            pieces: pieces(&steps).into(),
            steps: steps.into(),
            manners,
            control: control.clone(),
        };
        (script, control)
    }

    /// Frames with these numbers of bytes.
    pub(crate) fn frames(lens: impl IntoIterator<Item = usize>) -> (Self, Control) {
        let steps = lens.into_iter().map(Step::Data).collect();
        let manners = Manners {
            knows_size: false,
            knows_end: false,
        };
        Self::new(steps, manners)
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.steps.front() {
            Some(Step::Wait) => {
                // Like any source, it wakes only the task that polled it last.
                let replaced = self.control.get(|progress| match progress.fired {
                    true => None,
                    false => Some(progress.waiting.replace(cx.waker().clone())),
                });
                if replaced.is_some() {
                    return Poll::Pending;
                }
                // A wait that a poll found ended wakes no task.
                self.control.get(|progress| {
                    progress.fired = false;
                    progress.waiting = None;
                });
            }
            Some(Step::WakeInline) => {
                self.steps.pop_front();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Step::Error) => {
                self.steps.clear();
                self.control.get(|progress| progress.failed = true);
                return Poll::Ready(Some(Err(Broken)));
            }
            Some(Step::Data(_) | Step::Trailers) => {
                self.steps.pop_front();
                self.control.get(|progress| progress.frames += 1);
                let frame = match self.pieces.pop_front().unwrap() {
                    Piece::Data(data) => Frame::data(data),
                    Piece::Trailers(fields) => Frame::trailers(fields),
                };
                return Poll::Ready(Some(Ok(frame)));
            }
            None => {
                self.control.get(|progress| progress.ended = true);
                return Poll::Ready(None);
            }
        }
        self.steps.pop_front();
        self.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.manners.knows_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.manners.knows_size {
            true => SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum()),
            false => SizeHint::new(),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.control.get(|progress| progress.dropped += 1);
    }
}
