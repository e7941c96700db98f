//! A command as a plain value.

use std::fmt;

/// One command: its name and its arguments, in one buffer.
///
/// `Debug` shows the name and no argument: an argument may be a token (A6).
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    /// Each part with its length in front, as four bytes.
    data: Vec<u8>,
    parts: usize,
}

impl Command {
    /// A command without arguments, and with room for `size` bytes of them.
    #[must_use]
    pub fn new(name: &str, size: usize) -> Self {
        let data = Vec::with_capacity(name.len() + size + 8 * LENGTH);
        Self { data, parts: 0 }.arg(name)
    }

    /// Appends an argument.
    ///
    /// An argument over 4 GiB, which no server takes, is left empty.
    #[must_use]
    pub fn arg(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        let (length, part) =
            u32::try_from(part.len()).map_or((0, &[][..]), |length| (length, part));
        self.data.extend_from_slice(&length.to_le_bytes());
        self.data.extend_from_slice(part);
        self.parts += 1;
        self
    }

    /// Appends a number in decimal digits.
    #[must_use]
    pub fn number(self, mut number: u64) -> Self {
        let (mut digits, mut start) = ([b'0'; 20], 20);
        while number > 0 || start == 20 {
            start -= 1;
            digits[start] += (number % 10) as u8;
            number /= 10;
        }
        self.arg(&digits[start..])
    }

    /// How many parts there are, the name included.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.parts
    }

    /// The parts, the name first.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        parts(&self.data)
    }

    /// The buffer, for [`parts`](parts()).
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.data
    }

    /// About as many bytes as it has on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        self.data.len()
    }
}

/// The parts of a command in this buffer, the name first.
pub fn parts(buffer: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<LENGTH>()?;
        let (part, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = after;
        Some(part)
    })
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.parts().next().unwrap_or_default();
        write!(f, "Command({}, {} arguments)", name.escape_ascii(), self.parts.saturating_sub(1))
    }
}

/// Bytes of a part's length.
const LENGTH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_as_they_were_given() {
        let command = Command::new("SET", 0).arg(b"a\0b").arg("").number(0).arg(vec![7; 70_000]);
        let parts: Vec<&[u8]> = command.parts().collect();
        assert_eq!(parts[..4], [&b"SET"[..], b"a\0b", b"", b"0"]);
        assert_eq!((parts[4].len(), parts.len(), command.count()), (70_000, 5, 5));
        assert_eq!(command.size(), 70_000 + 3 + 3 + 1 + 5 * 4);
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 1, 9, 10, 42, 30_000, 1_000_000_007, u64::MAX] {
            let command = Command::new("X", 0).number(number);
            assert_eq!(command.parts().nth(1), Some(number.to_string().as_bytes()));
        }
    }

    #[test]
    fn a6_debug_shows_no_argument() {
        let command = Command::new("GET", 0).arg("s3cret");
        assert_eq!(format!("{command:?}"), "Command(GET, 1 arguments)");
    }
}
