//! The token: the random value of one attempt, with the label of its holder.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Label, hex, label};

/// The text before the token in the value of a mark.
const MARK: &[u8] = b"done:";

/// The text before the digits in the value that a revoke leaves.
const REVOKED: &[u8] = b"revoked:";

/// Stands in a mark between the digits and when the work ran.
const RAN: u8 = b'@';

/// The number of hexadecimal digits at the front of the value.
const DIGITS: usize = 2 * Token::ENTROPY;

/// The value that a node stores at the keys of an attempt: 20 random bytes as 40 hexadecimal
/// digits. With a label, a space and the label follow.
///
/// The digits are a secret of the holder, since any client that knows the value can release the
/// lock. Therefore no `Debug` and no error shows them (A6). A token has no order and is not a
/// fencing token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// The number of random bytes in a token.
    pub const ENTROPY: usize = 20;

    /// Draws a token without a label from `fill`, a source of cryptographically strong randomness.
    ///
    /// # Errors
    ///
    /// The error of `fill`.
    pub fn draw(
        fill: impl FnOnce(&mut [u8]) -> Result<(), EntropyError>,
    ) -> Result<Self, EntropyError> {
        let mut random = [0; Self::ENTROPY];
        fill(&mut random)?;
        Ok(Self(random.map(hex).as_flattened().into()))
    }

    /// The same token with this label.
    #[must_use]
    pub fn labelled(&self, label: &Label) -> Self {
        let digits = &self.as_bytes()[..DIGITS];
        Self([digits, b" ", label.as_str().as_bytes()].concat().into())
    }

    /// The value of the mark that the holder of this token leaves: no holder has it. The label
    /// stays. Behind the digits stands when the work ran, in milliseconds of Unix time.
    pub(crate) fn mark(&self, ran: &Range<Duration>) -> Self {
        let (digits, label) = self.as_bytes().split_at(DIGITS);
        let ran = format!("{}{}-{}", char::from(RAN), ran.start.as_millis(), ran.end.as_millis());
        Self([MARK, digits, ran.as_bytes(), label].concat().into())
    }

    /// Parses the value that a node stores. A mark is no token.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let is_bare = value.len() == DIGITS && are_digits(value);
        let has_label = || !is_mark(value) && !is_revoked(value) && label_of(value).is_some();
        (is_bare || has_label()).then(|| Self(value.into()))
    }

    /// The value that a node stores. Do not log it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The label, if it has one.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        label_of(self.as_bytes())
    }
}

/// The label in a value that a node stores. A value of another library has none (L2).
pub(crate) fn label_of(value: &[u8]) -> Option<&str> {
    let mark = value.strip_prefix(MARK);
    let value = mark.or_else(|| value.strip_prefix(REVOKED)).unwrap_or(value);
    let (digits, mut rest) = value.split_at_checked(DIGITS)?;
    if mark.is_some() && rest.first() == Some(&RAN) {
        rest = &rest[rest.iter().position(|byte| *byte == b' ')?..];
    }
    let text = rest.strip_prefix(b" ").filter(|_| are_digits(digits))?;
    label::parse(text)
}

/// When the work ran that a mark stands for, in Unix time.
pub(crate) fn ran_of(value: &[u8]) -> Option<Range<Duration>> {
    let rest = value.strip_prefix(MARK).filter(|_| is_mark(value))?.get(DIGITS..)?;
    let text = rest.strip_prefix(&[RAN])?.split(|byte| *byte == b' ').next()?;
    let (start, end) = std::str::from_utf8(text).ok()?.split_once('-')?;
    let time = |text: &str| text.parse().ok().map(Duration::from_millis);
    Some(time(start)?..time(end)?)
}

/// Whether a value is that of a mark. The text before the digits keeps it apart from each token,
/// whatever its label.
pub(crate) fn is_mark(value: &[u8]) -> bool {
    has_digits_behind(MARK, value)
}

/// Whether a revoke has left this value.
pub(crate) fn is_revoked(value: &[u8]) -> bool {
    has_digits_behind(REVOKED, value)
}

fn has_digits_behind(prefix: &[u8], value: &[u8]) -> bool {
    let digits = value.strip_prefix(prefix).and_then(|value| value.get(..DIGITS));
    digits.is_some_and(are_digits)
}

fn are_digits(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why there are no random bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random bytes: {reason}")]
pub struct EntropyError {
    reason: String,
}

impl EntropyError {
    /// Creates the error with this reason.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token::draw(|bytes| {
            bytes.fill(0xab);
            Ok(())
        })
        .unwrap()
    }

    /// Rule A6.
    #[test]
    fn l1_a_token_prints_on_the_wire_and_nowhere_else() {
        let labelled = token().labelled(&Label::new("web-3 nightly").unwrap());
        assert_eq!(token().as_bytes(), b"ab".repeat(20));
        assert_eq!(labelled.as_bytes(), [&b"ab".repeat(20)[..], b" web-3 nightly"].concat());
        assert_eq!(labelled.label(), Some("web-3 nightly"));
        for token in [token(), labelled] {
            assert_eq!(format!("{token:?}"), "Token(..)");
            assert_eq!(Token::parse(token.as_bytes()), Some(token));
        }
    }

    #[test]
    fn a_mark_says_when_its_work_ran_and_keeps_the_label() {
        const MS: Duration = Duration::from_millis(1);
        let labelled = token().labelled(&Label::new("done: @1-2 web").unwrap());
        let mark = |token: &Token| token.mark(&(1_700 * MS..23_000 * MS)).as_bytes().to_vec();
        let digits = "ab".repeat(20);
        let bare = format!("done:{digits}@1700-23000");
        assert_eq!(mark(&token()), bare.as_bytes());
        assert_eq!(mark(&labelled), format!("{bare} done: @1-2 web").as_bytes());
        for (value, is_done, label, ran) in [
            (&*bare, true, None, Some(1_700..23_000)),
            (&format!("{bare} web-3"), true, Some("web-3"), Some(1_700..23_000)),
            // It does not say when.
            (&format!("done:{digits}"), true, None, None),
            (&format!("done:{digits} @1-2"), true, Some("@1-2"), None),
            // Of another program, or none.
            (&format!("done:{digits}@17 web-3"), true, Some("web-3"), None),
            (&format!("done:{digits}@-1-2"), true, None, None),
            (&format!("{digits}@1-2 web-3"), false, None, None),
            (&format!("{digits} @1-2"), false, Some("@1-2"), None),
            (&format!("revoked:{digits}@1-2 web-3"), false, None, None),
        ] {
            let ran = ran.map(|ran: Range<u32>| ran.start * MS..ran.end * MS);
            let value = value.as_bytes();
            assert_eq!((is_mark(value), label_of(value), ran_of(value)), (is_done, label, ran));
        }
    }

    #[test]
    fn a_second_label_replaces_the_first() {
        let label = |text| Label::new(text).unwrap();
        let token = token().labelled(&label("one")).labelled(&label("two"));
        assert_eq!(token.label(), Some("two"));
    }

    #[test]
    fn l2_a_value_of_another_library_has_no_label() {
        let digits = "ab".repeat(20);
        for value in [
            "",
            "web-3 nightly",
            &digits,
            &format!("{digits} "),
            &format!("{digits}-web-3"),
            &format!("{digits} a\nb"),
            &format!("{} web-3", digits.to_uppercase()),
            &format!("{} web-3", &digits[1..]),
            "550e8400-e29b-41d4-a716-446655440000 web",
        ] {
            assert_eq!(label_of(value.as_bytes()), None, "{value:?}");
            let is_bare = value == digits;
            assert_eq!(Token::parse(value.as_bytes()).is_some(), is_bare, "{value:?}");
        }
    }
}
