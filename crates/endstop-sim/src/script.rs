//! Response as a script: headers, steps and an end. A transport plays it.

use std::time::Duration;

/// Response for a transport to play.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Whether a `103 Early Hints` comes first.
    pub(crate) early_hints: bool,
    /// Whether to send nothing, not even headers.
    pub(crate) silent: bool,
    /// Announced `Content-Length`; the body is chunked if `None`.
    pub(crate) length: Option<u64>,
    pub(crate) steps: Vec<Step>,
    pub(crate) finish: ScriptEnd,
}

/// Step of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Bytes of one event; one HTTP chunk unless [`Script::recut`] splits them otherwise.
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Silence until the peer closes.
    Stall,
    /// Bytes sent one at a time with a pause, over and over, until the peer closes.
    Drip(Vec<u8>),
    /// Byte to repeat, and its count.
    Flood(u8, u64),
}

/// End of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptEnd {
    /// Complete, as the framing requires.
    Whole,
    /// Close of the connection, whatever the framing requires.
    Fin,
    /// Close of the connection inside a chunk.
    FinInChunk,
    /// Reset of the connection.
    Reset,
}

/// Way in which the bytes of a body are split into HTTP chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunks {
    /// One chunk per event.
    #[default]
    Event,
    /// Chunks of random size, by a seed.
    Random,
    /// One chunk per byte.
    Byte,
    /// One chunk for all bytes between two pauses.
    Joined,
}

impl Chunks {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Event, Self::Random, Self::Byte, Self::Joined];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Random => "random",
            Self::Byte => "byte",
            Self::Joined => "joined",
        }
    }

    /// Returns the variant with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chunks| chunks.name() == name)
    }
}

impl Script {
    /// Returns a complete response with a `Content-Length`.
    pub(crate) fn plain(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            early_hints: false,
            silent: false,
            length: Some(body.len() as u64),
            steps: vec![Step::Bytes(body)],
            finish: ScriptEnd::Whole,
        }
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the end.
    pub(crate) fn ending(mut self, finish: ScriptEnd) -> Self {
        self.finish = finish;
        self
    }

    /// Appends a step.
    pub(crate) fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Changes every piece of bytes and updates the length.
    pub(crate) fn map_bytes(mut self, mut change: impl FnMut(Vec<u8>) -> Vec<u8>) -> Self {
        for step in &mut self.steps {
            if let Step::Bytes(bytes) = step {
                *bytes = change(std::mem::take(bytes));
            }
        }
        if self.length.is_some() {
            self.length = Some(self.bytes().len() as u64);
        }
        self
    }

    /// Returns all bytes of the steps.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for step in &self.steps {
            if let Step::Bytes(bytes) = step {
                all.extend_from_slice(bytes);
            }
        }
        all
    }

    /// Adds a pause after every piece of bytes.
    pub(crate) fn paced(&mut self, pace: Duration) {
        if pace.is_zero() {
            return;
        }
        let mut steps = Vec::with_capacity(self.steps.len() * 2);
        for step in self.steps.drain(..) {
            let is_bytes = matches!(step, Step::Bytes(_));
            steps.push(step);
            if is_bytes {
                steps.push(Step::Wait(pace));
            }
        }
        self.steps = steps;
    }

    /// Splits the bytes into other pieces.
    pub(crate) fn recut(&mut self, chunks: Chunks, seed: u64) {
        if chunks == Chunks::Event {
            return;
        }
        let mut seed = seed.wrapping_mul(2).wrapping_add(1);
        let mut steps = Vec::new();
        let mut run = Vec::new();
        for step in self.steps.drain(..) {
            match step {
                Step::Bytes(bytes) => run.extend(bytes),
                Step::Wait(_) | Step::Stall | Step::Drip(_) | Step::Flood(..) => {
                    steps.extend(cut(std::mem::take(&mut run), chunks, &mut seed));
                    steps.push(step);
                }
            }
        }
        steps.extend(cut(run, chunks, &mut seed));
        self.steps = steps;
    }
}

fn cut(bytes: Vec<u8>, chunks: Chunks, seed: &mut u64) -> Vec<Step> {
    let mut rest = bytes.as_slice();
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let size = match chunks {
            Chunks::Event | Chunks::Joined => rest.len(),
            Chunks::Byte => 1,
            Chunks::Random => 1 + usize::try_from(random(seed) % 96).unwrap_or(0),
        };
        let (piece, after) = rest.split_at(size.min(rest.len()));
        steps.push(Step::Bytes(piece.to_vec()));
        rest = after;
    }
    steps
}

/// Returns the next number of a small random generator (splitmix64).
pub(crate) fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
