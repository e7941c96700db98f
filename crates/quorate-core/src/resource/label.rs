//! The label: a text by which people recognise a holder.

use std::fmt;
use std::sync::Arc;

/// What other processes see of a holder: a host name and a purpose, for example.
///
/// 1 to 200 bytes of UTF-8 without control characters. The nodes store it in clear text behind the
/// token. Any process may have stored it: errors and inspections show it as `{:?}` does, between
/// quotation marks, with quotation marks, direction marks and the like escaped (L1). So does its
/// `Display`; do the same with a text of [`as_str`](Self::as_str).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

impl Label {
    /// The longest label, in bytes.
    pub const MAX_LEN: usize = 200;

    /// Checks `text` and keeps it unchanged.
    ///
    /// # Errors
    ///
    /// [`InvalidLabel`] if the text is empty, too long or has a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidLabel> {
        let text = text.as_ref();
        check(text).map(|()| Self(text.into()))
    }

    /// Makes a label of any text, such as the name of a user or a host.
    ///
    /// A character that is not shown as it is, such as a line break or a direction mark, becomes
    /// `�`, and so does an empty text. A text that is too long is cut behind a whole character.
    #[must_use]
    pub fn lossy(text: &str) -> Self {
        let is_shown = |character: &char| {
            !character.is_control() && (character.is_ascii() || character.escape_debug().len() == 1)
        };
        let shown = |character| Some(character).filter(is_shown).unwrap_or(REPLACED);
        let mut text: String = text.chars().map(shown).collect();
        if text.is_empty() {
            text.push(REPLACED);
        }
        Self::cut(&text)
    }

    /// The label of a lock that was revoked: `revoked`, or `revoked by` and the label of the
    /// process that did it, cut to the longest length.
    pub(crate) fn of_revoked(by: Option<&Self>) -> Self {
        let text = by.map_or_else(|| "revoked".to_owned(), |by| format!("{BY}{}", by.0));
        Self::cut(&text)
    }

    /// The label of the process in the label of a lock that was revoked.
    pub(crate) fn in_revoked(label: &str) -> Option<Self> {
        label.strip_prefix(BY).and_then(|by| Self::new(by).ok())
    }

    /// The text without the characters that end behind the longest length.
    fn cut(text: &str) -> Self {
        let is_end = |at: &usize| text.is_char_boundary(*at);
        let end = (0..=text.len().min(Self::MAX_LEN)).rev().find(is_end);
        Self(text[..end.unwrap_or(0)].into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Prints the text between quotation marks, escaped.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The text before the label of the process that revoked a lock.
const BY: &str = "revoked by ";

/// Stands where [`Label::lossy`] found a character that is not shown as it is.
const REPLACED: char = char::REPLACEMENT_CHARACTER;

/// Why a text cannot be a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLabel {
    /// The text has no bytes.
    #[error("the label is empty")]
    Empty,
    /// The text is longer than [`Label::MAX_LEN`].
    #[error("the label has {len} bytes, at most {} are possible", Label::MAX_LEN)]
    TooLong {
        /// The length in bytes.
        len: usize,
    },
    /// The text has a control character, such as a line break.
    #[error("the label has a control character at byte {at}")]
    Control {
        /// The byte at which it begins.
        at: usize,
    },
}

/// The label in a text that came from a node; `None` for any text that is no label.
pub(super) fn parse(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|text| check(text).is_ok())
}

fn check(text: &str) -> Result<(), InvalidLabel> {
    match text.len() {
        0 => return Err(InvalidLabel::Empty),
        1..=Label::MAX_LEN => {}
        len => return Err(InvalidLabel::TooLong { len }),
    }
    let control = text.char_indices().find(|(_, character)| character.is_control());
    control.map_or(Ok(()), |(at, _)| Err(InvalidLabel::Control { at }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l3_a_label_is_short_text_without_control_characters() {
        let long = "x".repeat(Label::MAX_LEN);
        let len = Label::MAX_LEN + 1;
        for (text, expected) in [
            ("web-3 nightly", Ok(())),
            ("\u{1F512} büro", Ok(())),
            (" ", Ok(())),
            (&*long, Ok(())),
            ("", Err(InvalidLabel::Empty)),
            (&*format!("{long}x"), Err(InvalidLabel::TooLong { len })),
            ("a\nb", Err(InvalidLabel::Control { at: 1 })),
            ("\u{1b}[2J", Err(InvalidLabel::Control { at: 0 })),
            ("é\u{85}", Err(InvalidLabel::Control { at: 2 })),
        ] {
            assert_eq!(Label::new(text).map(drop), expected, "{text:?}");
            assert_eq!(parse(text.as_bytes()).is_some(), expected.is_ok(), "{text:?}");
        }
        assert_eq!(parse(&[0xff]), None, "no UTF-8");
        let label = Label::new("büro \"3\u{202e}").unwrap();
        let shown = r#""büro \"3\u{202e}""#;
        assert_eq!(format!("{label} {label:?}"), format!("{shown} Label({shown})"));
    }

    #[test]
    fn a_label_is_made_of_any_text() {
        let long = "x".repeat(Label::MAX_LEN - 1);
        for (text, expected) in [
            ("max müller's \"web\"\\3 \u{1F512}", "max müller's \"web\"\\3 \u{1F512}"),
            ("a\nb\u{1b}[2J\u{85}\u{7f}", "a�b�[2J��"),
            ("a\u{202e}b\u{2066}\u{200f}\u{2028}\u{feff}", "a�b����"),
            ("", "�"),
            (&format!("{long}xyz"), &format!("{long}x")),
            (&format!("{long}é"), &long),
        ] {
            let label = Label::lossy(text);
            assert_eq!(label.as_str(), expected, "{text:?}");
            assert_eq!(Label::new(label.as_str()), Ok(label));
        }
    }

    #[test]
    fn v6_the_label_of_a_revoked_lock_names_the_process_that_did_it() {
        let by = |text: &str| Label::of_revoked(Some(&Label::new(text).unwrap()));
        assert_eq!(Label::of_revoked(None).as_str(), "revoked");
        assert_eq!(by("admin@web-3").as_str(), "revoked by admin@web-3");
        let long = by(&"ü".repeat(100));
        assert_eq!(Label::new(long.as_str()), Ok(long.clone()));
        assert!(long.as_str().len() >= Label::MAX_LEN - 1);
    }
}
