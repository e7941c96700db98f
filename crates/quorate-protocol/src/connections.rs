//! The connections of one node: one for commands and, from the first wait on, one for watches.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{Call, Capabilities, NotSent, Operation};

use crate::batcher::{Batcher, Settings, Way};
use crate::carrier::Carrier;
use crate::connection::Dial;
use crate::handshake::Purpose;

/// Carries calls over connections that one client makes, in order.
///
/// Clones share the connections, which end with the last of them.
#[derive(Debug)]
pub struct Connections<D: Dial> {
    /// For commands, and for watches.
    both: Arc<(Batcher<D>, Batcher<D>)>,
}

impl<D: Dial> Connections<D> {
    pub(crate) fn new(dial: D, settings: &Settings<D>) -> Self {
        let way = Arc::new(Way::new(dial, settings.again.clone()));
        let batcher = |purpose| Batcher::new(Arc::clone(&way), purpose, settings);
        Self { both: Arc::new((batcher(Purpose::Commands), batcher(Purpose::Watches))) }
    }
}

impl<D: Dial> Clone for Connections<D> {
    fn clone(&self) -> Self {
        Self { both: Arc::clone(&self.both) }
    }
}

impl<D: Dial> Carrier for Connections<D> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.both.0.name())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ORDERED | Capabilities::WATCH | Capabilities::PUSH
    }

    fn connect_limit(&self) -> Duration {
        self.both.0.connect_limit()
    }

    fn begin(&self, call: Call) -> Result<(), NotSent> {
        match call.operation() {
            Operation::Watch { .. } => self.both.1.begin(call),
            _ => self.both.0.begin(call),
        }
    }
}
