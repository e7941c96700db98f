//! What is locked, the key that stands for it on a node, and the token that signs an attempt.

use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::EntropyError;

/// The name of what a user locks: any bytes, neither empty nor over 1 MiB.
///
/// Two names are one lock exactly if their bytes are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<[u8]>);

impl Resource {
    /// The longest name, in bytes. Redis itself would take 512 MB.
    pub const MAX_LEN: usize = 1 << 20;

    /// Takes `name` as it is.
    ///
    /// # Errors
    ///
    /// [`InvalidResource`] if the name is empty or longer than [`MAX_LEN`](Self::MAX_LEN).
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, InvalidResource> {
        let name = name.as_ref();
        match name.len() {
            0 => Err(InvalidResource::Empty),
            1..=Self::MAX_LEN => Ok(Self(name.into())),
            len => Err(InvalidResource::TooLong { len }),
        }
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({self})")
    }
}

/// Prints as ASCII with escapes, the first 64 bytes at the most.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable(&self.0, f)
    }
}

/// Why a name cannot be locked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResource {
    /// The name has no bytes.
    #[error("the resource has an empty name")]
    Empty,
    /// A lock over no resource at all would exclude nobody.
    #[error("the lock names no resource")]
    Nothing,
    /// The name is over [`Resource::MAX_LEN`].
    #[error("the resource's name is {len} bytes long, {max} are allowed", max = Resource::MAX_LEN)]
    TooLong {
        /// The length given, in bytes.
        len: usize,
    },
}

/// What a node stores for a resource: the manager's prefix, if any, and the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The key of `resource` under `prefix`; with an empty prefix, the name as it is.
    #[must_use]
    pub fn new(prefix: &[u8], resource: &Resource) -> Self {
        if prefix.is_empty() {
            Self(Arc::clone(&resource.0))
        } else {
            Self([prefix, resource.as_bytes()].concat().into())
        }
    }

    /// A key as a node stores it; `None` for one that no resource has.
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.into()))
    }

    /// A key of our own making.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// A number for the key, the same in every process and version (FNV-1a).
    pub(crate) fn stable_hash(&self) -> u32 {
        self.0
            .iter()
            .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Equal, ordered and hashed as its bytes are: a map by key can be asked for bytes.
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(")?;
        printable(&self.0, f)?;
        f.write_str(")")
    }
}

/// Prints as ASCII with escapes, the first 64 bytes at the most.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable(&self.0, f)
    }
}

/// The random value that signs one attempt: 20 bytes, 40 hexadecimal digits on the wire.
///
/// It is a secret of its holder: whoever knows it can release the lock, so no `Debug` and no error
/// shows it. It has no order; it is not a fencing token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 2 * TOKEN_ENTROPY]);

const TOKEN_ENTROPY: usize = 20;

impl Token {
    /// Random bytes in a token.
    pub const ENTROPY: usize = TOKEN_ENTROPY;

    /// Draws a token from `fill`, a source of cryptographically strong randomness.
    ///
    /// # Errors
    ///
    /// Whatever `fill` reports; there is no token then.
    pub fn draw(
        fill: impl FnOnce(&mut [u8]) -> Result<(), EntropyError>,
    ) -> Result<Self, EntropyError> {
        let mut random = [0; Self::ENTROPY];
        fill(&mut random)?;
        let mut digits = [0; 2 * TOKEN_ENTROPY];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(random) {
            pair[0] = hex_digit(byte >> 4);
            pair[1] = hex_digit(byte & 0xf);
        }
        Ok(Self(digits))
    }

    /// A token as it stands on the wire.
    pub(crate) fn parse(digits: &str) -> Option<Self> {
        let digits: [u8; 2 * TOKEN_ENTROPY] = digits.as_bytes().try_into().ok()?;
        let known = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        digits.iter().all(known).then_some(Self(digits))
    }

    /// The token as it stands on the wire. Do not log it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if planted!("debug_shows_the_token") {
            return f.write_str(&String::from_utf8_lossy(&self.0));
        }
        f.write_str("Token(..)")
    }
}

/// One or several resources that are locked together, all or none on each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources(Vec<Resource>);

impl Resources {
    /// The resources, each once, in the order given.
    #[must_use]
    pub fn as_slice(&self) -> &[Resource] {
        &self.0
    }
}

/// Names that can be locked: one name, or an array, slice or vector of names.
///
/// A name is a `&str`, a `String`, another kind of string (`Cow`, `Box`, `Arc`), bytes (`&[u8]`,
/// `Vec<u8>`, `b"..."`) or a [`Resource`]. Names are never joined: `["a", "bc"]` locks two
/// resources, which are not those of `["ab", "c"]`. A name that is given twice counts once.
pub trait IntoResources {
    /// Checks the names.
    ///
    /// # Errors
    ///
    /// [`InvalidResource`] if one of them cannot be locked, or if there is none.
    fn into_resources(self) -> Result<Resources, InvalidResource>;
}

/// One name; the element type of several.
pub trait IntoResource {
    /// Checks the name.
    ///
    /// # Errors
    ///
    /// [`InvalidResource`] if it cannot be locked.
    fn into_resource(self) -> Result<Resource, InvalidResource>;
}

fn distinct<T: IntoResource>(
    names: impl IntoIterator<Item = T>,
) -> Result<Resources, InvalidResource> {
    let (mut resources, mut seen) = (Vec::new(), HashSet::new());
    for name in names {
        let resource = name.into_resource()?;
        if seen.insert(resource.clone()) {
            resources.push(resource);
        }
    }
    if resources.is_empty() {
        return Err(InvalidResource::Nothing);
    }
    Ok(Resources(resources))
}

impl IntoResource for Resource {
    fn into_resource(self) -> Result<Resource, InvalidResource> {
        Ok(self)
    }
}

impl IntoResource for &Resource {
    fn into_resource(self) -> Result<Resource, InvalidResource> {
        Ok(self.clone())
    }
}

macro_rules! names {
    ($($name:ty),+) => {$(
        impl IntoResource for $name {
            fn into_resource(self) -> Result<Resource, InvalidResource> {
                Resource::new(self)
            }
        }
    )+};
}

macro_rules! one {
    ($($name:ty),+) => {$(
        impl IntoResources for $name {
            fn into_resources(self) -> Result<Resources, InvalidResource> {
                Ok(Resources(vec![self.into_resource()?]))
            }
        }
    )+};
}

macro_rules! shared_names {
    ($($name:ty),+) => {$(
        impl IntoResource for $name {
            fn into_resource(self) -> Result<Resource, InvalidResource> {
                Resource::new(self.as_bytes())
            }
        }
    )+};
}

names!(&str, &String, String, &[u8], &Vec<u8>, Vec<u8>);
shared_names!(Cow<'_, str>, Box<str>, Arc<str>, &Arc<str>);
one!(&str, &String, String, &[u8], &Vec<u8>, Vec<u8>, Resource, &Resource);
one!(Cow<'_, str>, Box<str>, Arc<str>, &Arc<str>);

impl<const N: usize> IntoResource for &[u8; N] {
    fn into_resource(self) -> Result<Resource, InvalidResource> {
        Resource::new(self.as_slice())
    }
}

impl<const N: usize> IntoResources for &[u8; N] {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        self.as_slice().into_resources()
    }
}

impl<T: IntoResource + Clone> IntoResources for &Vec<T> {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        self.as_slice().into_resources()
    }
}

impl<T: IntoResource + Clone, const N: usize> IntoResources for &[T; N] {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        self.as_slice().into_resources()
    }
}

impl<T: IntoResource> IntoResources for Vec<T> {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        distinct(self)
    }
}

impl<T: IntoResource, const N: usize> IntoResources for [T; N] {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        distinct(self)
    }
}

impl<T: IntoResource + Clone> IntoResources for &[T] {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        distinct(self.iter().cloned())
    }
}

impl IntoResources for Resources {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        Ok(self)
    }
}

const fn hex_digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' + nibble - 10,
    }
}

fn printable(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SHOWN: usize = 64;
    write!(f, "{}", bytes[..bytes.len().min(SHOWN)].escape_ascii())?;
    if bytes.len() > SHOWN {
        write!(f, "… ({} bytes)", bytes.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(resources: impl IntoResources) -> Result<Vec<Vec<u8>>, InvalidResource> {
        let resources = resources.into_resources()?;
        Ok(resources.as_slice().iter().map(|r| r.as_bytes().to_vec()).collect())
    }

    #[test]
    fn a5_names_are_never_joined() {
        assert_ne!(names(["a", "bc"]), names(["ab", "c"]));
        assert_eq!(names(["a", "bc"]), Ok(vec![b"a".to_vec(), b"bc".to_vec()]));
    }

    #[test]
    fn a_name_given_twice_counts_once() {
        let (array, vector): (&[&str; 2], &Vec<String>) =
            (&["b", "a"], &vec!["b".to_owned(), "a".to_owned()]);
        assert_eq!(names(array), names(vector));
        assert_eq!(names(vec!["b", "a", "b"]), Ok(vec![b"b".to_vec(), b"a".to_vec()]));
    }

    #[test]
    fn bytes_are_one_name_and_taken_as_they_are() {
        let name = [0u8, 0xff, b'\r', b'\n'];
        assert_eq!(names(&name[..]), Ok(vec![name.to_vec()]));
        assert_eq!(names(name.to_vec()), Ok(vec![name.to_vec()]));
        assert_eq!(names(b"xy"), Ok(vec![b"xy".to_vec()]));
        assert_eq!(names([b"xy", b"zz"]), Ok(vec![b"xy".to_vec(), b"zz".to_vec()]));
    }

    #[test]
    fn a_name_may_be_any_kind_of_string() {
        let xy = || Ok(vec![b"xy".to_vec()]);
        let shared = Arc::<str>::from("xy");
        assert_eq!(names(&shared), xy());
        assert_eq!(names(shared), xy());
        assert_eq!(names(Box::<str>::from("xy")), xy());
        assert_eq!(names([Cow::Borrowed("xy"), Cow::Owned("xy".to_owned())]), xy());
    }

    #[test]
    fn empty_and_overlong_names_are_refused() {
        assert_eq!(names(""), Err(InvalidResource::Empty));
        assert_eq!(names(Vec::<String>::new()), Err(InvalidResource::Nothing));
        assert!(names(vec![b'x'; Resource::MAX_LEN]).is_ok());
        let len = Resource::MAX_LEN + 1;
        assert_eq!(names(vec![b'x'; len]), Err(InvalidResource::TooLong { len }));
    }

    #[test]
    fn a_token_prints_on_the_wire_and_nowhere_else() {
        let token = Token::draw(|bytes| {
            bytes.copy_from_slice(&[0xab; 20]);
            Ok(())
        })
        .unwrap();
        assert_eq!(token.as_bytes(), b"ab".repeat(20));
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn a_long_name_does_not_flood_a_message() {
        let resource = Resource::new(vec![b'x'; Resource::MAX_LEN]).unwrap();
        assert!(resource.to_string().len() < 100);
    }
}
