//! What can be sent: the record of a detached lock, and fencing tokens.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::algorithm::fence::FencingToken;
use crate::manager::detached::DetachedLock;

/// As the text of [`DetachedLock::encode`], with the secret in it.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for DetachedLock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encode())
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for DetachedLock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// As its number.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for FencingToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

/// Refuses zero, and numbers over [`FencingToken::MAX`].
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for FencingToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let refused = || D::Error::custom("a fencing token is between 1 and 2^53 - 1");
        Self::new(u64::deserialize(deserializer)?).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, U64Deserializer};

    use super::*;

    /// Prints what a value is sent as.
    struct Sent<T>(T);

    impl<T: Serialize> fmt::Display for Sent<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }

    #[test]
    fn a_token_is_sent_as_its_number_and_others_are_refused() {
        let token = FencingToken::new(7).unwrap();
        assert_eq!(Sent(token).to_string(), "7");
        let read = |number: u64| {
            let number: U64Deserializer<Error> = number.into_deserializer();
            FencingToken::deserialize(number).ok()
        };
        assert_eq!(read(7), Some(token));
        assert_eq!(read(FencingToken::MAX.get()), Some(FencingToken::MAX));
        assert_eq!((read(0), read(FencingToken::MAX.get() + 1)), (None, None));
    }
}
