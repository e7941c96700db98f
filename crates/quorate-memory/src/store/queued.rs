//! The queues that a node keeps: who waits for a key, in which order.

use std::time::Instant;

use quorate_core::protocol::queue;
use quorate_core::{BackendError, Key, Place};

use super::{Store, Value, wrong_type};

impl Store {
    pub(crate) fn join(
        &mut self,
        key: &Key,
        place: &Place,
        now: Instant,
    ) -> Result<Option<Place>, BackendError> {
        let queue = queue::last(key);
        let no_place = || BackendError::from_reply("ERR what stands at the queue is no place");
        let before = match self.string(queue.as_bytes(), now)? {
            Some(name) => Some(Place::parse(&name).ok_or_else(no_place)?),
            None => None,
        };
        let name = before.as_ref().map(|before| before.key().as_bytes().to_vec());
        self.name(place.key().as_bytes(), name.unwrap_or_default(), now);
        self.name(queue.as_bytes(), place.key().as_bytes().to_vec(), now);
        Ok(before)
    }

    pub(crate) fn leave(
        &mut self,
        key: &Key,
        place: &Place,
        before: Option<&Place>,
        now: Instant,
    ) -> Result<(), BackendError> {
        self.remove(place.key().as_bytes());
        let queue = queue::last(key);
        if self.string(queue.as_bytes(), now)?.as_deref() == Some(place.key().as_bytes()) {
            let before = before.map(|before| before.key().as_bytes());
            match before.filter(|before| self.get(before, now).is_some()) {
                Some(before) => self.name(queue.as_bytes(), before.to_vec(), now),
                None => self.remove(queue.as_bytes()),
            }
        }
        Ok(())
    }

    /// Names a place at a key.
    fn name(&mut self, key: &[u8], place: Vec<u8>, now: Instant) {
        self.put(key, Value::String(place), Some(now + Place::TTL));
    }

    fn string(&self, key: &[u8], now: Instant) -> Result<Option<Vec<u8>>, BackendError> {
        match self.get(key, now) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value.clone())),
            Some(Value::List) => Err(wrong_type()),
        }
    }
}
