//! A set of nodes or of attempts.

/// Which of up to eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set(u8);

impl Set {
    /// Whether it has this one.
    #[must_use]
    pub fn has(self, one: usize) -> bool {
        self.0 & (1 << one) != 0
    }

    /// With this one, too.
    #[must_use]
    pub fn with(self, one: usize) -> Self {
        Self(self.0 | (1 << one))
    }

    /// Those in either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All but this one.
    #[must_use]
    pub fn without(self, one: usize) -> Self {
        Self(self.0 & !(1 << one))
    }

    /// How many.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The same set after each `one` was renamed to the place where `order` has it.
    #[must_use]
    pub fn renamed(self, order: &[usize]) -> Self {
        let places = order.iter().enumerate();
        places.fold(
            Self::default(),
            |set, (new, old)| if self.has(*old) { set.with(new) } else { set },
        )
    }
}
