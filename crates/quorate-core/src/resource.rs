//! Resource, key, token and label: what users lock, and what a node stores for it.

mod label;
pub(crate) mod token;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

pub use self::label::{InvalidLabel, Label};
pub use self::token::Token;
pub(crate) use self::token::{is_mark, is_revoked, label_of, ran_of};

/// The name of what a user locks: 1 byte to 1 MiB, of any values.
///
/// Two names are the same lock if and only if their bytes are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<[u8]>);

impl Resource {
    /// The longest name, in bytes. Redis itself allows 512 MB.
    pub const MAX_LEN: usize = 1 << 20;

    /// Checks the length of `name` and keeps its bytes unchanged.
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

/// Prints at most the first 64 bytes, as ASCII with escapes.
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
    /// No name was given. A lock over no resource would exclude no other client.
    #[error("the lock names no resource")]
    Nothing,
    /// One of no [permits](crate::LockManager::permit) was asked for.
    #[error("0 permits leave nothing to hold")]
    NoPermits,
    /// [Several](crate::LockRequest::several) of the permits are wanted: none, or more than there
    /// are.
    #[error("{wanted} of {permits} permits cannot be held")]
    Several {
        /// How many are wanted.
        wanted: usize,
        /// How many there are.
        permits: usize,
    },
    /// The name begins with `quorate:`, or the key contains `:quorate:`. Both are reserved for
    /// helper keys.
    #[error("a name that begins with \"quorate:\" or contains \":quorate:\" cannot be locked")]
    Reserved,
    /// A name is given twice, where one of several is wanted.
    #[error("a name is given twice, where one of several is wanted")]
    Duplicate,
    /// More names are given than 1,024.
    #[error("at most {max} names or permits can be given", max = Resources::MOST)]
    TooMany,
    /// The name is longer than [`Resource::MAX_LEN`].
    #[error("the resource's name is {len} bytes long, {max} are allowed", max = Resource::MAX_LEN)]
    TooLong {
        /// The length given, in bytes.
        len: usize,
    },
}

/// The key that a node stores for a resource: the manager's prefix, if any, and the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The key of `resource` under `prefix`. With an empty prefix it is the name itself.
    #[must_use]
    pub fn new(prefix: &[u8], resource: &Resource) -> Self {
        if prefix.is_empty() {
            Self(Arc::clone(&resource.0))
        } else {
            Self([prefix, resource.as_bytes()].concat().into())
        }
    }

    /// The name of a set of keys in this process. No lock can have it, since it is reserved.
    pub(crate) fn of_set(keys: &[Self]) -> Self {
        let mut name = b":quorate:any".to_vec();
        for key in keys {
            name.extend_from_slice(&key.0.len().to_be_bytes());
            name.extend_from_slice(&key.0);
        }
        Self(name.into())
    }

    /// The key that a check sets and deletes below `prefix`. No lock can have it, since it is
    /// reserved.
    pub(crate) fn of_check(prefix: &[u8]) -> Self {
        let name = b":quorate:check";
        // Without a prefix: where users of an ACL may write, as they need for other helper keys.
        Self(if prefix.is_empty() { name[1..].into() } else { [prefix, name].concat().into() })
    }

    /// A key as a node stores it. `None` for no bytes, since no resource has that key.
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.into()))
    }

    /// Whether the key could be a helper key: of another key, or of a node. Nodes keep theirs
    /// without a prefix, but a prefix may be empty in another process.
    pub(crate) fn is_reserved(&self, prefix: &[u8]) -> bool {
        const RESERVED: &[u8] = b":quorate:";
        let name = self.0.strip_prefix(prefix).unwrap_or(&self.0);
        let begins = |bytes: &[u8]| bytes.starts_with(&RESERVED[1..]);
        begins(name)
            || begins(&self.0)
            || self.0.windows(RESERVED.len()).any(|part| part == RESERVED)
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Prints at most the first 64 bytes, as ASCII with escapes.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable(&self.0, f)
    }
}

/// Resources that are locked together: at most 1,024 (S4). Each node grants all of them or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources(Vec<Resource>);

impl Resources {
    /// The resources in the order given, without duplicates.
    #[must_use]
    pub fn as_slice(&self) -> &[Resource] {
        &self.0
    }

    /// How many names may be given. One script call acquires or extends them, for which a node
    /// stands still.
    pub(crate) const MOST: usize = 1024;

    /// The names of which one is wanted: none twice (S4).
    pub(crate) fn of_choice(
        names: impl IntoIterator<Item = Result<Resource, InvalidResource>>,
    ) -> Result<Self, InvalidResource> {
        let names = names.into_iter().take(Self::MOST + 1);
        let names: Vec<Resource> = names.collect::<Result<_, _>>()?;
        let count = names.len();
        let distinct = distinct(names)?;
        if distinct.0.len() < count { Err(InvalidResource::Duplicate) } else { Ok(distinct) }
    }
}

/// Names that can be locked: one name, or an array, slice or vector of names.
///
/// A name is a `&str`, a `String`, another kind of string (`Cow`, `Box`, `Arc`), bytes (`&[u8]`,
/// `Vec<u8>`, `b"..."`) or a [`Resource`]. Names are never joined (A5): `["a", "bc"]` and
/// `["ab", "c"]` lock different resources. A name that is given twice counts once.
pub trait IntoResources {
    /// Checks the names.
    ///
    /// # Errors
    ///
    /// [`InvalidResource`] if a name cannot be locked, or if there is no name.
    fn into_resources(self) -> Result<Resources, InvalidResource>;
}

/// A name that can be locked. Also the element type where several names are given.
pub trait IntoResource {
    /// Checks the name.
    ///
    /// # Errors
    ///
    /// [`InvalidResource`] if the name cannot be locked.
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
        if resources.len() > Resources::MOST {
            return Err(InvalidResource::TooMany);
        }
    }
    if resources.is_empty() {
        return Err(InvalidResource::Nothing);
    }
    Ok(Resources(resources))
}

macro_rules! names {
    ($(|$name:ident: $type:ty| $resource:expr),+) => {$(
        impl IntoResource for $type {
            fn into_resource(self) -> Result<Resource, InvalidResource> {
                let $name = self;
                $resource
            }
        }

        impl IntoResources for $type {
            fn into_resources(self) -> Result<Resources, InvalidResource> {
                Ok(Resources(vec![self.into_resource()?]))
            }
        }
    )+};
}

names!(
    |name: Resource| Ok(name),
    |name: &Resource| Ok(name.clone()),
    |name: &str| Resource::new(name),
    |name: &String| Resource::new(name),
    |name: String| Resource::new(name),
    |name: &[u8]| Resource::new(name),
    |name: &Vec<u8>| Resource::new(name),
    |name: Vec<u8>| Resource::new(name),
    |name: Cow<'_, str>| Resource::new(&*name),
    |name: Box<str>| Resource::new(&*name),
    |name: Arc<str>| Resource::new(&*name),
    |name: &Arc<str>| Resource::new(&**name)
);

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

macro_rules! lists {
    ($([$($bounds:tt)+] |$names:ident: $type:ty| $each:expr),+) => {$(
        impl<$($bounds)+> IntoResources for $type {
            fn into_resources(self) -> Result<Resources, InvalidResource> {
                let $names = self;
                distinct($each)
            }
        }
    )+};
}

lists!(
    [T: IntoResource] |names: Vec<T>| names,
    [T: IntoResource, const N: usize] |names: [T; N]| names,
    [T: IntoResource + Clone] |names: &[T]| names.iter().cloned(),
    [T: IntoResource + Clone] |names: &Vec<T>| names.iter().cloned(),
    [T: IntoResource + Clone, const N: usize] |names: &[T; N]| names.iter().cloned()
);

impl IntoResources for Resources {
    fn into_resources(self) -> Result<Resources, InvalidResource> {
        Ok(self)
    }
}

/// The two hexadecimal digits of a byte.
pub(crate) fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0xf].map(|nibble| b"0123456789abcdef"[usize::from(nibble)])
}

/// Writes the first `most` of these keys, and how many more there are: `a, b and 2 more`.
pub(crate) fn write_keys(keys: &[Key], most: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (shown, more) = keys.split_at(keys.len().min(most));
    for (index, key) in shown.iter().enumerate() {
        write!(f, "{}{key}", if index == 0 { "" } else { ", " })?;
    }
    match more.len() {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
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
    fn bytes_are_one_name_and_stay_unchanged() {
        let name = [0u8, 0xff, b'\r', b'\n'];
        assert_eq!(names(&name[..]), Ok(vec![name.to_vec()]));
        assert_eq!(names(name.to_vec()), Ok(vec![name.to_vec()]));
        assert_eq!(names(b"xy"), Ok(vec![b"xy".to_vec()]));
        assert_eq!(names([b"xy", b"zz"]), Ok(vec![b"xy".to_vec(), b"zz".to_vec()]));
    }

    #[test]
    fn a_name_can_be_any_kind_of_string() {
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
    fn a_message_shows_64_bytes_of_a_name() {
        let x64 = "x".repeat(64);
        for (name, shown) in [
            (b"a \"b\"\n\xff".to_vec(), "a \\\"b\\\"\\n\\xff".to_owned()),
            (vec![b'x'; 64], x64.clone()),
            (vec![b'x'; 65], format!("{x64}… (65 bytes)")),
            (vec![b'x'; Resource::MAX_LEN], format!("{x64}… (1048576 bytes)")),
        ] {
            let resource = Resource::new(name).unwrap();
            let key = Key::new(b"", &resource);
            assert_eq!(format!("{resource} {key}"), format!("{shown} {shown}"));
            let expected = format!("Resource({shown}) Key({shown})");
            assert_eq!(format!("{resource:?} {key:?}"), expected);
        }
    }
}
