//! Decoding a copy: what comes compressed is passed on as it came, and read decoded.
//!
//! A few bytes can decode to gigabytes. So every layer decodes into a fixed buffer, at most [`SLICE`]
//! bytes at a time, and stops for good when more than [`RATIO`] bytes come of each encoded byte.

mod gzip;

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf as _, Bytes};
use endstop::frame::framer::begins_readable;
use flate2::{Decompress, FlushDecompress, Status};
use gzip::Gzip;
use zstd::stream::raw::{DParameter, Operation as _};

/// The most that is decoded in one go. Other tasks run in between.
pub(crate) const SLICE: usize = 64 << 10;
/// The most that is decoded of each encoded byte, on average. Repetitive JSON reaches a tenth of it.
const RATIO: u64 = 200;
/// The part of a body to which the ratio does not apply.
const FREE: u64 = 4 << 20;
/// The most encodings of one body.
const MOST_LAYERS: usize = 2;
/// Buffer of a layer.
const BUFFER: usize = 16 << 10;
/// The largest window of zstd, as a power of two: RFC 9659 allows 8 MiB in HTTP. Brotli's largest is
/// 16 MiB, and that of the others 32 KiB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Window of the encodings with the largest one.
const MOST_WINDOW: u64 = 16 << 20;

/// Decodes a body piece by piece.
pub(crate) struct Decoder {
    /// One for each encoding, the outermost first.
    layers: Vec<Layer>,
    encoded: u64,
    /// Bytes that all layers wrote: a layer between two others can grow, too.
    decoded: u64,
}

/// Result of decoding for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// There is more to decode in this piece.
    Part,
    /// All of the piece is decoded.
    All,
    /// The bytes are corrupt: nothing more can be decoded.
    Corrupt,
    /// The bytes decode to more than the limit: nothing more is decoded.
    TooMuch,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Decoder")
    }
}

/// Names of encodings, which others may contain.
const CODINGS: [&str; 5] = ["gzip", "deflate", "br", "zstd", "compress"];

fn has_coding(name: &str) -> bool {
    CODINGS.iter().any(|coding| name.contains(coding))
}

impl Decoder {
    /// Decodes nothing: every byte is corrupt.
    const UNREADABLE: Self = Self { layers: Vec::new(), encoded: 0, decoded: 0 };

    /// Returns a decoder for the encodings that a header lists, or for what the first bytes show; none
    /// if the body is to be read as it is. Bytes that are not text and cannot be decoded are corrupt, and so
    /// is text that should be compressed.
    #[must_use]
    pub(crate) fn new(encodings: &str, first: &[u8]) -> Option<Self> {
        let names = encodings.split(',').map(|name| name.trim().to_ascii_lowercase());
        let names: Vec<String> = names
            .filter(|name| {
                !matches!(&**name, "" | "identity" | "none" | "binary" | "utf-8" | "utf8")
            })
            .collect();
        let mut layers = Vec::new();
        // The encoding that was applied last is listed last.
        for name in names.iter().rev().take(MOST_LAYERS + 1) {
            match Coding::named(name) {
                Some(coding) => layers.push(Layer::new(coding)),
                // Clients leave out names that they do not know, and decode the others.
                None if names.iter().any(|name| has_coding(name)) => return Self::corrupt(first),
                None => return Self::unreadable(first),
            }
        }
        // Compressed, and nobody says so.
        if layers.is_empty() && first.first() == Some(&0x1f) {
            layers.push(Layer::new(Coding::Gzip(Box::default())));
        }
        match layers.len() {
            0 => None,
            // Decoders may take text in for a while before they notice.
            1..=MOST_LAYERS if begins_readable(first) => Some(Self::UNREADABLE),
            1..=MOST_LAYERS => Some(Self { layers, encoded: 0, decoded: 0 }),
            _ => Self::corrupt(first),
        }
    }

    /// Returns a decoder that can read nothing; none if there is nothing to read.
    fn corrupt(first: &[u8]) -> Option<Self> {
        (!first.is_empty()).then_some(Self::UNREADABLE)
    }

    /// Returns a decoder that can read nothing; none if the bytes are text, whatever their head says.
    fn unreadable(first: &[u8]) -> Option<Self> {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        let is_text = first.starts_with(b"\xef\xbb\xbf") || first.first().is_none_or(is_text);
        if is_text { None } else { Self::corrupt(first) }
    }

    /// Reports whether a few bytes can take milliseconds, whatever the size of a slice: brotli fills its
    /// window of up to 16 MiB in one go.
    pub(crate) fn takes_long(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.coding, Coding::Brotli(_)))
    }

    /// Decodes the beginning of a piece, hands over what it holds, and takes it off the piece.
    pub(crate) fn decode(&mut self, piece: &mut Bytes, mut read: impl FnMut(&[u8])) -> Decoded {
        if self.layers.is_empty() {
            return Decoded::Corrupt;
        }
        let mut left = SLICE;
        while left > 0 {
            let step = self.step(piece);
            let decoded = self.layers.last_mut().map(Layer::take).unwrap_or_default();
            read(decoded);
            left = left.saturating_sub(decoded.len());
            match step {
                Ok(Step::Wrote) => {}
                Ok(Step::Starved) => return Decoded::All,
                Err(stopped) => return stopped,
            }
        }
        Decoded::Part
    }

    /// Returns the memory of the decoders, in bytes, as far as it is used: a window fills with what was
    /// decoded.
    pub(crate) fn memory(&self) -> usize {
        let used = self
            .layers
            .iter()
            .map(|layer| (layer.written + layer.coding.waiting()).min(MOST_WINDOW));
        usize::try_from(used.sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Runs the innermost layer that can run, until the last one has written something or the piece is
    /// used up.
    fn step(&mut self, piece: &mut Bytes) -> Result<Step, Decoded> {
        let last = self.layers.len().saturating_sub(1);
        let mut index = last;
        loop {
            let Some((before, layer)) = self.layers.split_at_mut_checked(index) else {
                return Ok(Step::Starved);
            };
            let Some(layer) = layer.first_mut() else { return Ok(Step::Starved) };
            let mut source = before.last_mut().map_or(Source::Piece(piece), Source::Layer);
            let starved = source.bytes().is_empty();
            if starved && !layer.is_full {
                let Some(outer) = index.checked_sub(1) else { return Ok(Step::Starved) };
                index = outer;
                continue;
            }
            let Ran { taken, written, well } = layer.run(source.bytes());
            if source.take(taken) {
                self.encoded += taken as u64;
            }
            self.decoded += written as u64;
            let waiting = layer.coding.waiting();
            if self.decoded + waiting > FREE.max(self.encoded.saturating_mul(RATIO)) {
                return Err(Decoded::TooMuch);
            }
            if !well || taken == 0 && written == 0 && !starved {
                return Err(Decoded::Corrupt);
            }
            if written > 0 && index == last {
                return Ok(Step::Wrote);
            }
            if written > 0 {
                index += 1;
            }
        }
    }
}

enum Step {
    /// The last layer has written something.
    Wrote,
    /// All of the piece is used up.
    Starved,
}

/// Source of a layer: the piece, or the layer before it.
enum Source<'a> {
    Piece(&'a mut Bytes),
    Layer(&'a mut Layer),
}

impl Source<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Piece(piece) => piece,
            Self::Layer(layer) => layer.buffer.get(layer.from..layer.to).unwrap_or_default(),
        }
    }

    /// Takes bytes away. Reports whether they were encoded bytes of the body.
    fn take(&mut self, count: usize) -> bool {
        match self {
            Self::Piece(piece) => piece.advance(count.min(piece.len())),
            Self::Layer(layer) => layer.from += count,
        }
        matches!(self, Self::Piece(_))
    }
}

/// One encoding, and what it has decoded.
struct Layer {
    coding: Coding,
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
    /// Whether the buffer was full, so that more may come without more input.
    is_full: bool,
    /// Bytes that it has decoded.
    written: u64,
}

/// Result of running a decoder once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    taken: usize,
    written: usize,
    /// Whether the bytes are valid so far.
    well: bool,
}

impl Layer {
    fn new(coding: Coding) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self { coding, buffer, from: 0, to: 0, is_full: false, written: 0 }
    }

    /// Decodes into the buffer, whose content was taken.
    fn run(&mut self, input: &[u8]) -> Ran {
        let ran = self.coding.run(input, &mut self.buffer);
        (self.from, self.to) = (0, ran.written);
        self.written += ran.written as u64;
        self.is_full = ran.written == self.buffer.len();
        ran
    }

    /// Takes the decoded bytes.
    fn take(&mut self) -> &[u8] {
        let range = std::mem::replace(&mut self.from, self.to)..self.to;
        self.buffer.get(range).unwrap_or_default()
    }
}

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

enum Coding {
    Gzip(Box<Gzip>),
    Deflate(Inflate),
    Brotli(Box<Brotli>),
    Zstd(Box<zstd::stream::raw::Decoder<'static>>),
    /// Complete: what follows is not part of the body.
    Ended,
}

impl Coding {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gzip" | "x-gzip" => Self::Gzip(Box::default()),
            "deflate" => Self::Deflate(Inflate::Unknown),
            "br" => {
                let alloc = StandardAlloc::default;
                // Without the extension for windows of up to 1 GiB.
                Self::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            "zstd" => {
                let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).ok()?;
                Self::Zstd(Box::new(decoder))
            }
            _ => return None,
        })
    }

    fn run(&mut self, input: &[u8], output: &mut [u8]) -> Ran {
        let (ran, ended) = match self {
            Self::Gzip(gzip) => (gzip.run(input, output), false),
            Self::Deflate(inflate) => inflate.run(input, output),
            Self::Brotli(state) => run_brotli(state, input, output),
            Self::Zstd(decoder) => (run_zstd(decoder, input, output), false),
            Self::Ended => (Ran { taken: input.len(), written: 0, well: true }, false),
        };
        if ended {
            *self = Self::Ended;
        }
        ran
    }

    /// Returns the number of bytes that are decoded already and wait for room. Brotli decodes up to a
    /// whole window in one go.
    fn waiting(&self) -> u64 {
        let Self::Brotli(state) = self else { return 0 };
        let size = usize::try_from(state.ringbuffer_size).unwrap_or(0);
        let pos = usize::try_from(state.pos).unwrap_or(0);
        (state.rb_roundtrips * size + pos).saturating_sub(state.partial_pos_out) as u64
    }
}

fn run_brotli(state: &mut Brotli, input: &[u8], output: &mut [u8]) -> (Ran, bool) {
    let (mut left, mut taken) = (input.len(), 0);
    let (mut room, mut written, mut total) = (output.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut left,
        &mut taken,
        input,
        &mut room,
        &mut written,
        output,
        &mut total,
        state,
    );
    let well = match result {
        BrotliResult::ResultSuccess
        | BrotliResult::NeedsMoreInput
        | BrotliResult::NeedsMoreOutput => true,
        BrotliResult::ResultFailure => false,
    };
    (Ran { taken, written, well }, matches!(result, BrotliResult::ResultSuccess))
}

fn run_zstd(
    decoder: &mut zstd::stream::raw::Decoder<'static>,
    input: &[u8],
    output: &mut [u8],
) -> Ran {
    match decoder.run_on_buffers(input, output) {
        Ok(status) => Ran { taken: status.bytes_read, written: status.bytes_written, well: true },
        Err(_) => Ran { taken: 0, written: 0, well: false },
    }
}

/// By the standard with a header, by some servers without. The first byte shows it.
enum Inflate {
    Unknown,
    Running(Box<Decompress>),
}

impl Inflate {
    fn run(&mut self, input: &[u8], output: &mut [u8]) -> (Ran, bool) {
        if let (Self::Unknown, Some(first)) = (&*self, input.first()) {
            *self = Self::Running(Box::new(Decompress::new(first & 0x0f == 8)));
        }
        match self {
            Self::Unknown => (Ran { taken: 0, written: 0, well: true }, false),
            Self::Running(decompress) => inflate(decompress, input, output),
        }
    }
}

/// Decompresses once, and reports whether the data has ended.
fn inflate(decompress: &mut Decompress, input: &[u8], output: &mut [u8]) -> (Ran, bool) {
    let before = (decompress.total_in(), decompress.total_out());
    let status = decompress.decompress(input, output, FlushDecompress::None);
    let count = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(0);
    let ran = Ran {
        taken: count(decompress.total_in(), before.0),
        written: count(decompress.total_out(), before.1),
        well: status.is_ok(),
    };
    (ran, matches!(status, Ok(Status::StreamEnd)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_of_encodings_that_a_client_may_decode_are_not_read_as_text() {
        for encodings in
            ["deflate, deflate, deflate", "foo, deflate", "deflate;q=1", "a, b, c, gzip"]
        {
            let mut decoder = Decoder::new(encodings, b"0text").unwrap();
            let mut piece = Bytes::from_static(b"0text");
            assert_eq!(decoder.decode(&mut piece, |_| {}), Decoded::Corrupt, "{encodings}");
        }
        assert!(Decoder::new("foo", b"{}").is_none());
    }

    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;
    use crate::respond::bomb::{BOMB, bomb};

    /// Returns what these bytes decode to, in pieces of this size, and how that ended.
    fn decode(encoding: &str, bytes: &[u8], cut: usize) -> (Vec<u8>, Decoded) {
        let mut decoder = Decoder::new(encoding, bytes).unwrap();
        let mut out = Vec::new();
        for piece in bytes.chunks(cut) {
            let mut piece = Bytes::copy_from_slice(piece);
            loop {
                let before = out.len();
                let decoded = decoder.decode(&mut piece, |bytes| out.extend_from_slice(bytes));
                assert!(out.len() - before <= SLICE + BUFFER);
                match decoded {
                    Decoded::Part => {}
                    Decoded::All => break,
                    Decoded::Corrupt | Decoded::TooMuch => return (out, decoded),
                }
            }
        }
        (out, Decoded::All)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(text, 1).unwrap()
    }

    fn text() -> Vec<u8> {
        (0..60_000_u32).flat_map(|n| (n.wrapping_mul(n) % 251).to_be_bytes()).collect()
    }

    #[test]
    fn every_coding_in_every_cutting() {
        let text = text();
        let (gz, zl, de, zs) = (gzip(&text), zlib(&text), deflate(&text), zstd(&text));
        for cut in [1, 7, 1000, 1 << 20] {
            let well = (text.clone(), Decoded::All);
            assert_eq!(decode("gzip", &gz, cut), well);
            assert_eq!(decode("", &gz, cut), well, "unlabelled");
            assert_eq!(decode("deflate", &zl, cut), well);
            assert_eq!(decode("deflate", &de, cut), well);
            assert_eq!(decode("zstd", &zs, cut), well);
        }
        // By the reference encoder.
        let brotli = [0x0b, 0x02, 0x80, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x03];
        assert_eq!(decode("br", &brotli, 1), (b"hello".to_vec(), Decoded::All));
    }

    /// Several members are one body, and several encodings are decoded one by one.
    #[test]
    fn members_and_lists_of_encodings() {
        let text = text();
        let (head, tail) = text.split_at(1000);
        let mut members = gzip(head);
        members.extend(gzip(b""));
        members.extend([0; 3]);
        members.extend(gzip(tail));
        let well = (text.clone(), Decoded::All);
        let twice = gzip(&gzip(&text));
        let mixed = zstd(&zlib(&text));
        for cut in [1, 13, 1 << 20] {
            assert_eq!(decode("gzip", &members, cut), well);
            assert_eq!(decode("", &members, cut), well);
            for list in ["gzip, identity", "identity, gzip", " GZIP ,,", "x-gzip"] {
                assert_eq!(decode(list, &members, cut), well, "{list}");
            }
            assert_eq!(decode("gzip, gzip", &twice, cut), well);
            assert_eq!(decode("deflate, zstd", &mixed, cut), well);
        }
        assert!(Decoder::new("gzip, gzip, gzip, gzip", b"").is_none());
        assert!(Decoder::new("gzip, aes128gcm", b"").is_none());
        for unknown in ["gzip, gzip, gzip, gzip", "gzip, aes128gcm", "aes128gcm", "compress"] {
            let mut decoder = Decoder::new(unknown, b"\x1f\x9d").unwrap();
            let mut bytes = Bytes::from_static(b"\x1f\x9d");
            assert_eq!(decoder.decode(&mut bytes, |_| {}), Decoded::Corrupt, "{unknown}");
        }
        assert!(Decoder::new("identity", b"data: {}").is_none());
        assert!(Decoder::new("", b"data: {}").is_none());
    }

    #[test]
    fn headers_of_members_may_have_every_part() {
        let plain = gzip(b"hello");
        let mut full = vec![0x1f, 0x8b, 8, 0x1f, 0, 0, 0, 0, 0, 3];
        full.extend([3, 0, 1, 2, 3]);
        full.extend(b"name\0comment\0");
        full.extend([0, 0]);
        full.extend(&plain[10..]);
        for cut in 1..full.len() {
            assert_eq!(decode("gzip", &full, cut), (b"hello".to_vec(), Decoded::All));
        }
        let mut empty_extra = vec![0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 3, 0, 0];
        empty_extra.extend(&plain[10..]);
        assert_eq!(decode("gzip", &empty_extra, 1).0, b"hello");
    }

    #[test]
    fn what_is_corrupt_stops_for_good_and_what_follows_the_end_is_ignored() {
        let corrupt = |encoding: &str, bytes: &[u8]| {
            assert_eq!(decode(encoding, bytes, 1).1, Decoded::Corrupt, "{encoding}");
            assert_eq!(decode(encoding, bytes, 99).1, Decoded::Corrupt, "{encoding}");
        };
        corrupt("gzip", b"\x1f\x8bx no gzip at all, whatever it says");
        corrupt("deflate", b"x no zlib at all, whatever it says");
        corrupt("zstd", b"no zstd at all, whatever it says");
        let mut wrong = gzip(b"hello");
        *wrong.iter_mut().rev().nth(5).unwrap() ^= 1;
        corrupt("gzip", &wrong);
        for (encoding, mut bytes) in [("gzip", gzip(b"hello")), ("deflate", zlib(b"hello"))] {
            bytes.extend(b"trailing");
            assert_eq!(decode(encoding, &bytes, 3), (b"hello".to_vec(), Decoded::All));
        }
    }

    /// Some servers name an encoding and do not apply it. Nothing of that may pass unread.
    #[test]
    fn text_that_should_be_compressed_is_corrupt() {
        for encoding in ["gzip", "br", "zstd", "deflate", "gzip, br"] {
            for text in ["data: {}\n\n", "\u{feff}event: x\n", "\n{\"a\":1}", "[{\"a\":1}]"] {
                let decoded = decode(encoding, text.as_bytes(), 99);
                assert_eq!(decoded, (Vec::new(), Decoded::Corrupt), "{encoding}: {text}");
            }
        }
        assert_eq!(decode("gzip", b"no member", 1).1, Decoded::Corrupt);
        assert_eq!(decode("gzip", b"\0\0", 1).1, Decoded::Corrupt);
    }

    #[test]
    fn layers_are_few_and_their_memory_is_counted() {
        let mut bytes = Bytes::from_static(b"\x8b\x02\x80hello\x03");
        let mut three = Decoder::new("br, br, br", &bytes).unwrap();
        assert_eq!(three.decode(&mut bytes, |_| {}), Decoded::Corrupt);
        let mut bytes: Bytes = gzip(&vec![0; 1 << 20]).into();
        let mut one = Decoder::new("gzip", &bytes).unwrap();
        while one.decode(&mut bytes, |_| {}) == Decoded::Part {}
        assert_eq!(one.memory(), 1 << 20);
    }

    /// Nothing grows without a limit, also not between two encodings.
    #[test]
    fn bombs_stop_early() {
        let zeros = vec![0; 64 << 20];
        let bomb = bomb(br#"{"x":""#);
        assert!(bomb.len() < 2500, "{}", bomb.len());
        let mut twice = GzEncoder::new(Vec::new(), Compression::best());
        twice.write_all(&gzip(b"").repeat(8 << 20 >> 4)).unwrap();
        let coded = [
            ("br", bomb.clone()),
            ("gzip", gzip(&zeros)),
            ("deflate", deflate(&zeros)),
            ("zstd", zstd(&zeros)),
            // Nothing comes of it in the end, but much in between.
            ("gzip, gzip", twice.finish().unwrap()),
        ];
        for (encoding, bytes) in coded {
            for cut in [64, 1 << 20] {
                let (out, decoded) = decode(encoding, &bytes, cut);
                assert_eq!(decoded, Decoded::TooMuch, "{encoding}");
                let most = FREE.max(bytes.len() as u64 * RATIO) + (1 << 20);
                assert!(out.len() as u64 <= most, "{encoding}: {}", out.len());
            }
        }
        const { assert!(BOMB > 2_600_000_000) };
    }

    #[test]
    fn windows_are_bounded() {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(&text()).unwrap();
        let large = encoder.finish().unwrap();
        assert_eq!(decode("zstd", &large, 99).1, Decoded::Corrupt);
        // The large windows of brotli: 0x11 and a size.
        let large = [0x11, 0x1e, 0x0b, 0x02, 0x80, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x03];
        assert_eq!(decode("br", &large, 99).1, Decoded::Corrupt);
    }
}
