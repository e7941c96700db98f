//! A command: how it is written, and as a plain value.

use std::fmt;

/// One command, in the form of a client.
pub trait Command: Sized + Send + Sync + 'static {
    /// A command without arguments.
    #[must_use]
    fn new(name: &str) -> Self;

    /// Appends an argument.
    #[must_use]
    fn arg(self, part: impl AsRef<[u8]>) -> Self;

    /// Appends a number in decimal digits.
    #[must_use]
    fn number(self, mut number: u64) -> Self {
        let (mut digits, mut start) = ([b'0'; 20], 20);
        while number > 0 || start == 20 {
            start -= 1;
            digits[start] += (number % 10) as u8;
            number /= 10;
        }
        self.arg(&digits[start..])
    }
}

/// A command as its parts, which are its name and its arguments, in one buffer.
///
/// `Debug` shows the name and no argument: an argument may be a token (A6).
#[derive(Clone, PartialEq, Eq)]
pub struct Parts {
    /// Each part with its length in front, as four bytes.
    buffer: Vec<u8>,
}

impl Parts {
    /// The parts, the name first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        parts(&self.buffer)
    }

    /// The buffer, for [`parts`].
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

impl Command for Parts {
    fn new(name: &str) -> Self {
        Self { buffer: Vec::with_capacity(USUAL_SIZE) }.arg(name)
    }

    /// An argument over 4 GiB, which no server takes, is left empty.
    fn arg(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        let (length, part) =
            u32::try_from(part.len()).map_or((0, &[][..]), |length| (length, part));
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(part);
        self
    }
}

/// The parts of a command in its buffer, the name first.
pub fn parts(buffer: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<LENGTH>()?;
        let (part, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        rest = after;
        Some(part)
    })
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.iter().next().unwrap_or_default();
        write!(f, "Parts({}, {} arguments)", name.escape_ascii(), self.iter().skip(1).count())
    }
}

/// The bytes of an acquire, a release or an extension of one name of up to some 60 bytes.
pub const USUAL_SIZE: usize = 192;

/// Bytes of a part's length.
const LENGTH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_as_they_were_given() {
        let command = Parts::new("SET").arg(b"a\0b").arg("").number(0).arg(vec![7; 70_000]);
        let parts: Vec<&[u8]> = command.iter().collect();
        assert_eq!(parts[..4], [&b"SET"[..], b"a\0b", b"", b"0"]);
        assert_eq!((parts[4].len(), parts.len()), (70_000, 5));
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 1, 9, 10, 42, 30_000, 1_000_000_007, u64::MAX] {
            let command = Parts::new("X").number(number);
            assert_eq!(command.iter().nth(1), Some(number.to_string().as_bytes()));
        }
    }

    #[test]
    fn a6_debug_shows_no_argument() {
        let command = Parts::new("GET").arg("s3cret");
        assert_eq!(format!("{command:?}"), "Parts(GET, 1 arguments)");
    }
}
