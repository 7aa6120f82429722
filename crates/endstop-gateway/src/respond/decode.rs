//! Decoding a copy: what comes compressed is passed on as it came, and read decoded.

use std::io::Write as _;

use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};

/// The most that is decoded at once, before it is read: a small piece can hold a great deal.
const PIECE: usize = 1 << 10;

/// Decodes a body piece by piece.
pub(crate) struct Decoder {
    coding: Coding,
    /// Whether decoding failed, so that nothing more can be decoded.
    broken: bool,
}

enum Coding {
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Deflate(Box<DeflateDecoder<Vec<u8>>>),
    Brotli(Box<brotli_decompressor::DecompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Vec<u8>>>),
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Decoder")
    }
}

impl Decoder {
    /// A decoder for what a content encoding names, or what the first bytes show; none if the body
    /// is to be read as it is.
    #[must_use]
    pub(crate) fn new(encoding: &str, first: &[u8]) -> Option<Self> {
        let encoding = encoding.trim().to_ascii_lowercase();
        let coding = match encoding.as_str() {
            "gzip" | "x-gzip" => Coding::Gzip(Box::new(GzDecoder::new(Vec::new()))),
            // By the standard with a header, by some servers without.
            "deflate" if first.first().is_some_and(|byte| byte & 0x0f == 8) => {
                Coding::Zlib(Box::new(ZlibDecoder::new(Vec::new())))
            }
            "deflate" => Coding::Deflate(Box::new(DeflateDecoder::new(Vec::new()))),
            "br" => Coding::Brotli(Box::new(brotli_decompressor::DecompressorWriter::new(
                Vec::new(),
                4096,
            ))),
            "zstd" => Coding::Zstd(Box::new(zstd::stream::write::Decoder::new(Vec::new()).ok()?)),
            // Compressed, and nobody says so.
            "" | "identity" if first.starts_with(&[0x1f, 0x8b]) => {
                Coding::Gzip(Box::new(GzDecoder::new(Vec::new())))
            }
            _ => return None,
        };
        Some(Self { coding, broken: false })
    }

    /// Decodes a piece and hands over what it holds.
    pub(crate) fn push(&mut self, bytes: &[u8], mut read: impl FnMut(&[u8])) {
        for piece in bytes.chunks(PIECE) {
            if self.broken {
                return;
            }
            self.broken = self.write(piece).is_err();
            let decoded = self.decoded();
            read(decoded);
            decoded.clear();
        }
    }

    fn write(&mut self, piece: &[u8]) -> std::io::Result<()> {
        match &mut self.coding {
            Coding::Gzip(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Coding::Zlib(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Coding::Deflate(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Coding::Brotli(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Coding::Zstd(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
        }
    }

    fn decoded(&mut self) -> &mut Vec<u8> {
        match &mut self.coding {
            Coding::Gzip(decoder) => decoder.get_mut(),
            Coding::Zlib(decoder) => decoder.get_mut(),
            Coding::Deflate(decoder) => decoder.get_mut(),
            Coding::Brotli(decoder) => decoder.get_mut(),
            Coding::Zstd(decoder) => decoder.get_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;

    fn decoded(encoding: &str, bytes: &[u8], cut: usize) -> Vec<u8> {
        let mut decoder = Decoder::new(encoding, bytes).unwrap();
        let mut out = Vec::new();
        for piece in bytes.chunks(cut) {
            decoder.push(piece, |decoded| out.extend_from_slice(decoded));
        }
        out
    }

    #[test]
    fn every_coding_in_every_cutting() {
        let text: Vec<u8> = (0..20_000_u32).flat_map(|n| (n % 251).to_be_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&text).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let zlib = zlib.finish().unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(&text).unwrap();
        let raw = raw.finish().unwrap();
        let zstd = zstd::stream::encode_all(text.as_slice(), 1).unwrap();
        for cut in [1, 7, 1000, 1 << 20] {
            assert_eq!(decoded("gzip", &gzip, cut), text);
            assert_eq!(decoded("", &gzip, cut), text, "unlabelled");
            assert_eq!(decoded("deflate", &zlib, cut), text);
            assert_eq!(decoded("deflate", &raw, cut), text);
            assert_eq!(decoded("zstd", &zstd, cut), text);
        }
        // By the reference encoder.
        let brotli = [0x0b, 0x02, 0x80, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x03];
        assert_eq!(decoded("br", &brotli, 1), b"hello");
    }

    #[test]
    fn what_is_broken_is_left_alone() {
        let mut decoder = Decoder::new("gzip", b"").unwrap();
        decoder.push(b"no gzip at all, whatever it says", |decoded| assert!(decoded.is_empty()));
        assert!(Decoder::new("", b"data: {}").is_none());
        assert!(Decoder::new("aes128gcm", b"").is_none());
    }
}
