//! A brotli bomb, written by hand: a few bytes that decode to gigabytes.

/// Bits, the lowest first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn put(&mut self, value: u32, bits: usize) {
        for bit in 0..bits {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let set = u8::from(value >> bit & 1 == 1) << (self.count % 8);
            if let Some(last) = self.bytes.last_mut() {
                *last |= set;
            }
            self.count += 1;
        }
    }

    fn align(&mut self) {
        self.count = self.bytes.len() * 8;
    }

    /// A prefix code of one symbol, which takes no bits.
    fn put_symbol(&mut self, symbol: u32, bits: usize) {
        self.put(1, 2);
        self.put(0, 2);
        self.put(symbol, bits);
    }
}

/// Length of a block.
const BLOCK: u32 = 1 << 24;
/// Number of blocks.
const BLOCKS: u32 = 156;
/// Size of the decoded bomb, without its beginning.
pub(crate) const BOMB: u64 = BLOCK as u64 * BLOCKS as u64;

/// Returns bytes that decode to this text and then to 2.6 GB of the letter `a`.
pub(crate) fn bomb(first: &[u8]) -> Vec<u8> {
    let mut bits = Bits::default();
    // A window of 16 MiB.
    bits.put(0b1111, 4);
    // A block that is not compressed: not the last, its length in 4 nibbles.
    bits.put(0, 1);
    bits.put(0, 2);
    bits.put(u32::try_from(first.len()).unwrap_or(1) - 1, 16);
    bits.put(1, 1);
    bits.align();
    bits.bytes.extend_from_slice(first);
    bits.align();
    for _ in 0..BLOCKS {
        // Not the last, its length in 6 nibbles, compressed.
        bits.put(0, 1);
        bits.put(2, 2);
        bits.put(BLOCK - 1, 24);
        bits.put(0, 1);
        // One type each of literals, commands and distances; no postfix, no direct distances; a
        // context mode; one tree each for literals and distances.
        bits.put(0, 3 + 6 + 2 + 2);
        bits.put_symbol(u32::from(b'a'), 8);
        // Insert one letter, and copy with 24 bits of length.
        bits.put_symbol(384 + (1 << 3) + 7, 10);
        // From a distance of 1, with one extra bit.
        bits.put_symbol(16, 6);
        bits.put(BLOCK - 1 - 2118, 24);
        bits.put(0, 1);
    }
    // An empty last block.
    bits.put(3, 2);
    bits.bytes
}
