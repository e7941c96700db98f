//! A lock on its way to another holder: a record that is written, sent and read.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::Ttl;
use crate::algorithm::round::{Loss, Round, Step};
use crate::backend::Claim;
use crate::cluster::Cluster;
use crate::driver::{Attempt, Flight, Operation};
use crate::error::AdoptError;
use crate::guard::LockGuard;
use crate::lease::Tenure;
use crate::resource::{Key, Token};

/// A lock that was [handed over](crate::LockGuard::hand_over), to be
/// [adopted](crate::LockManager::adopt) once.
///
/// **A secret**: whoever has it can extend and release the lock, and act as its holder. `Debug`
/// shows no token; [`encode`](Self::encode), and serde behind the feature `serde`, write it out,
/// so send it only where a password may go. It says nothing of how long the lock is still held:
/// that is measured when it is adopted.
///
/// Two holders of one record are two holders of one lock. Adopt it once, and keep no copy.
#[derive(Clone)]
pub struct HandOver {
    claim: Claim,
    fencing_token: Option<FencingToken>,
}

impl HandOver {
    pub(crate) const fn new(claim: Claim, fencing_token: Option<FencingToken>) -> Self {
        Self { claim, fencing_token }
    }

    /// The keys that the nodes keep for the lock.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.claim.keys()
    }

    /// The ttl that the lock was taken with, and will be extended to.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.claim.ttl().as_duration()
    }

    /// The lock's fencing token, if it was taken with one. The adopter has the same.
    #[must_use]
    pub const fn fencing_token(&self) -> Option<FencingToken> {
        self.fencing_token
    }

    /// The record as one printable word: a version, the ttl in milliseconds, the fencing token if
    /// there is one, the token and the keys in hexadecimal digits, with colons between them. Do not
    /// log it.
    ///
    /// A record with a fencing token has a version of its own, so that nobody who knows nothing of
    /// those adopts the lock and drops it.
    #[must_use]
    pub fn encode(&self) -> String {
        let token = String::from_utf8_lossy(self.claim.token().as_bytes());
        let ttl = self.claim.ttl().as_millis();
        let mut text = match self.fencing_token {
            None => format!("{VERSION}:{ttl}:{token}"),
            Some(number) => format!("{FENCED_VERSION}:{ttl}:{number}:{token}"),
        };
        for key in self.keys() {
            if !planted!("keys_are_joined_without_a_separator") {
                text.push(':');
            }
            for byte in key.as_bytes() {
                text.extend([byte >> 4, byte & 0xf].map(|nibble| {
                    // A nibble is a digit of base 16.
                    char::from_digit(nibble.into(), 16).unwrap_or('0')
                }));
            }
        }
        text
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    ///
    /// [`InvalidHandOver`] for anything else.
    pub fn decode(text: &str) -> Result<Self, InvalidHandOver> {
        let mut fields = text.split(':');
        let is_fenced = match fields.next() {
            Some(VERSION) => false,
            Some(FENCED_VERSION) => true,
            _ => return Err(InvalidHandOver::Version),
        };
        let ttl = fields.next().and_then(number);
        let ttl = Duration::from_millis(ttl.ok_or(InvalidHandOver::Malformed)?);
        let ttl = Ttl::try_from(ttl).map_err(|_| InvalidHandOver::Malformed)?;
        let fencing_token = match is_fenced {
            true => Some(fields.next().and_then(fence).ok_or(InvalidHandOver::Malformed)?),
            false => None,
        };
        let token = fields.next().and_then(Token::parse).ok_or(InvalidHandOver::Malformed)?;
        let mut keys: Vec<Key> = Vec::new();
        for field in fields {
            let key = unhex(field).and_then(Key::parse).ok_or(InvalidHandOver::Malformed)?;
            if keys.contains(&key) {
                return Err(InvalidHandOver::Malformed);
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(InvalidHandOver::Malformed);
        }
        Ok(Self::new(Claim::new(keys, token, ttl), fencing_token))
    }
}

const VERSION: &str = "quorate1";

/// The same with a fencing token.
const FENCED_VERSION: &str = "quorate2";

/// Shows the keys, the ttl and the fencing token, never the token.
impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver")
            .field("keys", &self.keys())
            .field("ttl", &self.ttl())
            .field("fencing_token", &self.fencing_token)
            .finish_non_exhaustive()
    }
}

impl FromStr for HandOver {
    type Err = InvalidHandOver;

    fn from_str(text: &str) -> Result<Self, InvalidHandOver> {
        Self::decode(text)
    }
}

/// Why a text is no [`HandOver`]. It does not repeat the text, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHandOver {
    /// A part is missing, too much, or not what it should be.
    #[error("the hand-over record is malformed")]
    Malformed,
    /// It is no record, or one of a version that is not known here.
    #[error("this is no hand-over record of a known version")]
    Version,
}

fn fence(digits: &str) -> Option<FencingToken> {
    FencingToken::new(number(digits)?)
}

/// As `encode` writes it: without a sign.
fn number(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The lock of a record, with a validity that is measured here and now: by an extension.
pub(crate) async fn adopt(
    cluster: &Arc<Cluster>,
    record: &HandOver,
) -> Result<LockGuard, AdoptError> {
    if cluster.register().is_closed() {
        return Err(AdoptError::Closed);
    }
    let _adopting = cluster.rounds().enter();
    let (claim, config) = (record.claim.clone(), &cluster.config);
    let ttl = config.parse_ttl(claim.ttl().as_duration())?;
    config
        .check_hold_limit(config.hold_limit, ttl)
        .map_err(|(limit, least)| AdoptError::HoldLimit { limit, least })?;
    let attempt = Attempt::adopted(Arc::clone(cluster), claim.clone(), record.fencing_token);
    let start = cluster.runtime.now();
    let patience = config.node_timeout(ttl);
    // As an acquire, it has to be won within its own validity: no other is known here.
    let mut round = Round::acquire(cluster.count(), start, patience, ttl, config.drift);
    let mut flight = Flight::new(&attempt, &Operation::Extend(claim.clone()));
    let outcome = flight.decide(&mut round).await;
    if let Some((first, second)) = cluster.conflict() {
        return Err(AdoptError::SameServer { first, second });
    }
    let votes = outcome.votes(cluster, start);
    let step = match outcome.step {
        Step::Lost(_) if planted!("adopter_trusts_the_record") => {
            Step::Won { valid_until: config.drift.valid_until(start, ttl) }
        }
        step => step,
    };
    match step {
        Step::Won { valid_until } => {
            let tenure = Tenure::new(Arc::clone(&attempt), start, valid_until, config.hold_limit);
            if tenure.held().is_err() {
                return Err(AdoptError::Expired { votes });
            }
            let guard = LockGuard::new(tenure).ok_or(AdoptError::Closed)?;
            if config.repairs {
                flight.repair(claim, valid_until, &outcome.tally);
            }
            Ok(guard)
        }
        Step::Lost(Loss::Expired) => Err(AdoptError::Expired { votes }),
        // Fewer refusals leave room for a quorum that still has the keys.
        Step::Lost(_) | Step::Wait if outcome.tally.refused() > cluster.count().spare() => {
            Err(AdoptError::NotHeld { votes })
        }
        Step::Lost(_) | Step::Wait => Err(AdoptError::NoQuorum { votes }),
    }
}

#[cfg(feature = "serde")]
mod with_serde {
    use std::borrow::Cow;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::HandOver;

    /// As the text of [`HandOver::encode`], with the secret in it.
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    impl Serialize for HandOver {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(&self.encode())
        }
    }

    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    impl<'de> Deserialize<'de> for HandOver {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = Cow::<'de, str>::deserialize(deserializer)?;
            Self::decode(&text).map_err(D::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> HandOver {
        let token = Token::draw(|bytes| {
            bytes.copy_from_slice(&[0xab; 20]);
            Ok(())
        });
        let keys = [Key::parse(b"a:1".to_vec()), Key::parse(vec![0, 0xff])].map(Option::unwrap);
        let claim =
            Claim::new(keys, token.unwrap(), Ttl::try_from(Duration::from_secs(5)).unwrap());
        HandOver::new(claim, None)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = record().encode();
        assert_eq!(text, format!("quorate1:5000:{}:613a31:00ff", "ab".repeat(20)));
        let read: HandOver = text.parse().unwrap();
        assert_eq!(read.encode(), text);
        assert_eq!(read.keys()[1].as_bytes(), [0, 0xff]);
    }

    #[test]
    fn a_fencing_token_goes_along_and_a_record_without_one_stays_as_it_was() {
        let fenced =
            HandOver { fencing_token: FencingToken::new(1_700_000_000_000_000), ..record() };
        let text = fenced.encode();
        let (token, keys) = ("ab".repeat(20), "613a31:00ff");
        assert_eq!(text, format!("quorate2:5000:1700000000000000:{token}:{keys}"));
        let read = HandOver::decode(&text).unwrap();
        assert_eq!(read.fencing_token(), fenced.fencing_token());
        assert_eq!(read.encode(), text);
        assert_eq!(HandOver::decode(&record().encode()).unwrap().fencing_token(), None);
    }

    #[test]
    fn a6_a_record_shows_no_token_and_an_error_no_record() {
        assert!(!format!("{:?}", record()).contains("abab"));
        let cut = &record().encode()[..30];
        assert!(!HandOver::decode(cut).unwrap_err().to_string().contains("ab"));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = record().encode();
        for (text, error) in [
            (String::new(), InvalidHandOver::Version),
            (good.replace("quorate1", "quorate3"), InvalidHandOver::Version),
            (good.replace("quorate1", "quorate2"), InvalidHandOver::Malformed),
            (good.replace("quorate1:5000:", "quorate2:5000:0:"), InvalidHandOver::Malformed),
            (good.replace(":5000:", ":5000:7:"), InvalidHandOver::Malformed),
            (good.replace(":5000:", ":0:"), InvalidHandOver::Malformed),
            (good.replace(":5000:", ":+5000:"), InvalidHandOver::Malformed),
            (good.replace(":5000:", ":99999999999999999999:"), InvalidHandOver::Malformed),
            (good.replace("abab", "ab"), InvalidHandOver::Malformed),
            (good.replace("613a31", "613a3"), InvalidHandOver::Malformed),
            (good.replace("613a31", "613a3x"), InvalidHandOver::Malformed),
            (good.replace("613a31", ""), InvalidHandOver::Malformed),
            (good.replace("613a31", "00ff"), InvalidHandOver::Malformed),
            (good[..46].to_owned(), InvalidHandOver::Malformed),
            // Of no key.
            (good[..54].to_owned(), InvalidHandOver::Malformed),
            (format!("{good}:"), InvalidHandOver::Malformed),
        ] {
            assert_eq!(HandOver::decode(&text).unwrap_err(), error, "{text}");
        }
    }
}
