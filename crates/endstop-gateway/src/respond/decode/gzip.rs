//! The gzip format: members, each of a header, compressed data and a checksum.

use flate2::{Crc, Decompress};

use super::{Ran, inflate};

/// Decodes gzip, with any number of members.
#[derive(Default)]
pub(super) struct Gzip {
    at: At,
    crc: Crc,
}

#[derive(Default)]
enum At {
    /// Before the first member.
    #[default]
    Start,
    /// After a member. Zeros may fill up the space between members.
    Between,
    Header(Header),
    Data(Box<Decompress>),
    /// In the checksum and the length, with the bytes so far.
    Trailer([u8; 8], usize),
    /// After the last member.
    Ended,
}

impl Gzip {
    /// Decodes once.
    pub(super) fn run(&mut self, input: &[u8], output: &mut [u8]) -> Ran {
        let mut taken = 0;
        loop {
            let rest = input.get(taken..).unwrap_or_default();
            if let At::Data(decompress) = &mut self.at {
                let (ran, ended) = inflate(decompress, rest, output);
                self.crc.update(output.get(..ran.written).unwrap_or_default());
                if ended {
                    self.at = At::Trailer([0; 8], 0);
                }
                let ran = Ran { taken: taken + ran.taken, ..ran };
                if !ended || ran.written > 0 || !ran.well {
                    return ran;
                }
                taken = ran.taken;
                continue;
            }
            let Some(&byte) = rest.first() else {
                return Ran { taken, written: 0, well: true };
            };
            taken += 1;
            if !self.read(byte) {
                return Ran { taken, written: 0, well: false };
            }
        }
    }

    /// Reads a byte outside of the compressed data. Reports whether it is valid.
    fn read(&mut self, byte: u8) -> bool {
        match &mut self.at {
            At::Start | At::Between if byte == 0x1f => self.at = At::Header(Header::default()),
            At::Between if byte == 0 => {}
            At::Start => return false,
            // Some bytes after the last member, which readers of gzip ignore.
            At::Between | At::Ended => self.at = At::Ended,
            At::Header(header) => match header.read(byte) {
                None => return false,
                Some(false) => {}
                Some(true) => {
                    self.crc = Crc::new();
                    self.at = At::Data(Box::new(Decompress::new(false)));
                }
            },
            At::Trailer(bytes, count) => {
                if let Some(place) = bytes.get_mut(*count) {
                    *place = byte;
                }
                *count += 1;
                if *count == bytes.len() {
                    let [a, b, c, d, e, f, g, h] = *bytes;
                    let sums = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
                    self.at = At::Between;
                    return sums == (self.crc.sum(), self.crc.amount());
                }
            }
            At::Data(_) => {}
        }
        true
    }
}

/// Header of a member, of which the first byte is read.
#[derive(Default)]
struct Header {
    /// Fixed bytes that were read after the first.
    fixed: u8,
    flags: u8,
    part: Part,
}

#[derive(Clone, Copy, Default)]
enum Part {
    #[default]
    Fixed,
    ExtraLength(Option<u8>),
    Extra(u16),
    Name,
    Comment,
    Checksum(u16),
}

impl Header {
    /// Reads a byte. Returns whether the header is complete; `None` if it is invalid.
    fn read(&mut self, byte: u8) -> Option<bool> {
        let done = match &mut self.part {
            Part::Fixed => {
                self.fixed += 1;
                match self.fixed {
                    1 if byte != 0x8b => return None,
                    // The only compression method.
                    2 if byte != 8 => return None,
                    3 if byte >= 0x20 => return None,
                    3 => self.flags = byte,
                    _ => {}
                }
                self.fixed == 9
            }
            Part::ExtraLength(low @ None) => {
                *low = Some(byte);
                false
            }
            Part::ExtraLength(Some(low)) => {
                self.part = Part::Extra(u16::from_le_bytes([*low, byte]));
                matches!(self.part, Part::Extra(0))
            }
            Part::Extra(left) | Part::Checksum(left) => {
                *left -= 1;
                *left == 0
            }
            Part::Name | Part::Comment => byte == 0,
        };
        Some(done && self.next())
    }

    /// Goes on to the next part that the flags name. Reports whether there is none.
    fn next(&mut self) -> bool {
        let parts = [
            (4, Part::ExtraLength(None)),
            (8, Part::Name),
            (16, Part::Comment),
            (2, Part::Checksum(2)),
        ];
        let passed = match self.part {
            Part::Fixed => 0,
            Part::ExtraLength(_) | Part::Extra(_) => 1,
            Part::Name => 2,
            Part::Comment => 3,
            Part::Checksum(_) => 4,
        };
        let next = parts.iter().skip(passed).find(|(flag, _)| self.flags & flag != 0);
        if let Some((_, part)) = next {
            self.part = *part;
        }
        next.is_none()
    }
}
