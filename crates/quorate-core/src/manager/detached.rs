//! The record of a detached lock, which another process adopts.

use std::str::FromStr;
use std::time::Duration;

use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::Ttl;
use crate::resource::{Key, Label, Token, hex};
use crate::seam::backend::{Claim, Mode};

/// A lock that was [detached](crate::LockGuard::detach), to be [adopted](crate::LockManager::adopt)
/// once.
///
/// **A secret**: a program that has it can extend and release the lock, and act as its holder.
/// `Debug` shows no token. [`encode`](Self::encode), and serde behind the feature `serde`, write
/// the token, so send the record only where a password may go.
///
/// The record does not say for how long the lock is still held. That is measured when it is
/// adopted. Two adopters of one record are two holders of one lock: adopt it once, and keep no
/// copy.
#[derive(Clone, Debug)]
pub struct DetachedLock {
    claim: Claim,
    fencing_token: Option<FencingToken>,
}

impl DetachedLock {
    pub(crate) const fn new(claim: Claim, fencing_token: Option<FencingToken>) -> Self {
        Self { claim, fencing_token }
    }

    pub(crate) const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The keys that the nodes store for the lock.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.claim.keys()
    }

    /// The ttl that the lock was acquired with, and to which `adopt` extends it.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.claim.ttl().as_duration()
    }

    /// The label of the lock, if it has one. The adopter has the same.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.claim.token().label()
    }

    /// The lock's fencing token, if one was asked for. The adopter has the same.
    #[must_use]
    pub const fn fencing_token(&self) -> Option<FencingToken> {
        self.fencing_token
    }

    /// Writes the record as one printable word. It is a secret: do not log it.
    ///
    /// Its parts, with colons between them: a version, the ttl in milliseconds, the fencing token,
    /// the token, the label and each key. Token, label and keys are in hexadecimal digits. There
    /// are four versions: without a fencing token and a label, with a fencing token, with a label,
    /// and of a reader. The last two leave the place of a missing fencing token or label empty. So
    /// a program that knows no fencing, no labels, or no readers, does not adopt the lock.
    #[must_use]
    pub fn encode(&self) -> String {
        let token = self.claim.token();
        let digits = String::from_utf8_lossy(&token.as_bytes()[..2 * Token::ENTROPY]);
        let ttl = self.claim.ttl().as_millis();
        let label = hexadecimal(token.label().unwrap_or_default().as_bytes());
        let mut text = match (self.fencing_token, token.label()) {
            _ if self.claim.mode() == Mode::Shared => {
                format!("{SHARED_VERSION}:{ttl}::{digits}:{label}")
            }
            (None, None) => format!("{VERSION}:{ttl}:{digits}"),
            (Some(number), None) => format!("{FENCED_VERSION}:{ttl}:{number}:{digits}"),
            (number, Some(_)) => {
                let number = number.map_or(String::new(), |number| number.to_string());
                format!("{LABELLED_VERSION}:{ttl}:{number}:{digits}:{label}")
            }
        };
        for key in self.keys() {
            text.push(':');
            text.push_str(&hexadecimal(key.as_bytes()));
        }
        text
    }
}

const VERSION: &str = "quorate1";

/// The same with a fencing token.
const FENCED_VERSION: &str = "quorate2";

/// With a label, and a fencing token or an empty field.
const LABELLED_VERSION: &str = "quorate3";

/// Of a reader, with an empty field, and a label or an empty field.
const SHARED_VERSION: &str = "quorate4";

/// Reads what [`encode`](DetachedLock::encode) wrote.
impl FromStr for DetachedLock {
    type Err = InvalidRecord;

    fn from_str(text: &str) -> Result<Self, InvalidRecord> {
        use InvalidRecord::Malformed;
        let mut fields = text.split(':');
        let (has_fence, has_label, mode) = match fields.next().unwrap_or_default() {
            VERSION => (false, false, Mode::Exclusive),
            FENCED_VERSION => (true, false, Mode::Exclusive),
            LABELLED_VERSION => (true, true, Mode::Exclusive),
            SHARED_VERSION => (true, true, Mode::Shared),
            _ => return Err(InvalidRecord::Version),
        };
        let mut next = |is_there| if is_there { fields.next().ok_or(Malformed) } else { Ok("") };
        let ttl = next(true)?.parse().map_err(|_| Malformed)?;
        let ttl = Ttl::try_from(Duration::from_millis(ttl)).map_err(|_| Malformed)?;
        let fencing_token = match next(has_fence)? {
            "" => None,
            digits => digits.parse().ok().and_then(FencingToken::new),
        };
        let mut token = Token::parse(next(true)?.as_bytes()).ok_or(Malformed)?;
        let label = next(has_label)?;
        if !label.is_empty() {
            let label = String::from_utf8(unhex(label).ok_or(Malformed)?).map_err(|_| Malformed)?;
            token = token.labelled(&Label::new(label).map_err(|_| Malformed)?);
        }
        let keys = fields.map(|field| unhex(field).and_then(Key::parse));
        let keys: Vec<Key> = keys.collect::<Option<_>>().ok_or(Malformed)?;
        if keys.is_empty() || (1..keys.len()).any(|at| keys[..at].contains(&keys[at])) {
            return Err(Malformed);
        }
        let record = Self::new(Claim::new(keys, token, ttl).with_mode(mode), fencing_token);
        // A field that its version does not have, or another form of a number or of digits.
        if record.encode() == text { Ok(record) } else { Err(Malformed) }
    }
}

/// Why a text is no [`DetachedLock`]. It does not repeat the text, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// A part is missing, too much, or not what it should be.
    #[error("the record of a detached lock is malformed")]
    Malformed,
    /// It is no record, or one of a version that is not known here.
    #[error("this is no record of a detached lock of a known version")]
    Version,
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| hex(*byte)).map(char::from).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> DetachedLock {
        let token = Token::draw(|bytes| {
            bytes.copy_from_slice(&[0xab; 20]);
            Ok(())
        });
        let keys = [Key::parse(b"a:1".to_vec()), Key::parse(vec![0, 0xff])].map(Option::unwrap);
        let claim =
            Claim::new(keys, token.unwrap(), Ttl::try_from(Duration::from_secs(5)).unwrap());
        DetachedLock::new(claim, None)
    }

    /// What a record has besides its keys and its ttl decides its version, so older ones stay as
    /// they were.
    #[test]
    fn a_record_is_read_as_it_was_written() {
        use Mode::{Exclusive, Shared};
        for (mode, number, label, expected) in [
            (Exclusive, 0, "", "quorate1:5000:TOKEN"),
            (Exclusive, 1_700_000_000_000_000, "", "quorate2:5000:1700000000000000:TOKEN"),
            (Exclusive, 0, "web:3", "quorate3:5000::TOKEN:7765623a33"),
            (Exclusive, 7, "web:3", "quorate3:5000:7:TOKEN:7765623a33"),
            (Shared, 0, "", "quorate4:5000::TOKEN:"),
            (Shared, 0, "web:3", "quorate4:5000::TOKEN:7765623a33"),
        ] {
            let (number, label) = (FencingToken::new(number), Label::new(label).ok());
            let claim = record().claim;
            let token = label.as_ref().map(|label| claim.token().labelled(label));
            let token = token.unwrap_or_else(|| claim.token().clone());
            let claim = Claim::new(claim.keys(), token, claim.ttl()).with_mode(mode);
            let text = DetachedLock::new(claim, number).encode();
            assert_eq!(text, expected.replace("TOKEN", &"ab".repeat(20)) + ":613a31:00ff");
            let read: DetachedLock = text.parse().unwrap();
            assert_eq!((read.claim.mode(), read.fencing_token()), (mode, number), "{text}");
            assert_eq!(read.label(), label.as_ref().map(Label::as_str), "{text}");
            assert_eq!((read.keys()[1].as_bytes(), read.ttl().as_secs()), (&[0, 0xff][..], 5));
            assert_eq!(read.encode(), text);
        }
    }

    #[test]
    fn a6_a_record_shows_no_token_and_an_error_no_record() {
        let shown = format!("{:?}", record());
        assert!(
            shown.contains("a:1") && shown.contains("5000") && !shown.contains("abab"),
            "{shown}"
        );
        let cut = &record().encode()[..30];
        assert!(!cut.parse::<DetachedLock>().unwrap_err().to_string().contains("ab"));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = record().encode();
        for (text, error) in [
            (String::new(), InvalidRecord::Version),
            (good.replace("quorate1", "quorate5"), InvalidRecord::Version),
            (good.replace("quorate1", "quorate2"), InvalidRecord::Malformed),
            (good.replace("quorate1:5000:", "quorate2:5000:0:"), InvalidRecord::Malformed),
            (good.replace("quorate1:5000:", "quorate2:5000::"), InvalidRecord::Malformed),
            (good.replace(":5000:", ":5000:7:"), InvalidRecord::Malformed),
            (good.replace(":5000:", ":0:"), InvalidRecord::Malformed),
            (good.replace(":5000:", ":+5000:"), InvalidRecord::Malformed),
            (good.replace(":5000:", ":99999999999999999999:"), InvalidRecord::Malformed),
            (good.replace("abab", "ab"), InvalidRecord::Malformed),
            (good.replace("613a31", "613a3"), InvalidRecord::Malformed),
            (good.replace("613a31", "613a3x"), InvalidRecord::Malformed),
            (good.replace("613a31", ""), InvalidRecord::Malformed),
            (good.replace("613a31", "00ff"), InvalidRecord::Malformed),
            (good[..46].to_owned(), InvalidRecord::Malformed),
            // Of no key.
            (good[..54].to_owned(), InvalidRecord::Malformed),
            (format!("{good}:"), InvalidRecord::Malformed),
            // A reader has no fencing token.
            (
                good.replace("quorate1:5000:", "quorate4:5000:7:").replace(":613a31", "::613a31"),
                InvalidRecord::Malformed,
            ),
            // Its first key is no label.
            (
                good.replace("quorate1:5000:", "quorate3:5000::").replace("613a31", "00ff"),
                InvalidRecord::Malformed,
            ),
        ] {
            assert_eq!(text.parse::<DetachedLock>().unwrap_err(), error, "{text}");
        }
    }
}
