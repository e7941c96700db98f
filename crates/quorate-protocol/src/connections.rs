//! The connections of one node: one for commands and, from the first wait on, one for watches.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{Call, Capabilities, NotSent, Operation};

use crate::batcher::{Batcher, Settings, Way};
use crate::carrier::Carrier;
use crate::connection::Dial;
use crate::handshake::Purpose;

/// Carries calls over connections that one client makes, in order. They end when it is dropped.
pub(crate) struct Connections<D: Dial> {
    way: Arc<Way<D>>,
    commands: Arc<Batcher<D>>,
    watches: Arc<Batcher<D>>,
}

impl<D: Dial> Connections<D> {
    pub(crate) fn new(dial: D, settings: &Settings<D>) -> Self {
        let way = Arc::new(Way::new(dial, settings));
        let batcher = |purpose| Arc::new(Batcher::new(Arc::clone(&way), purpose));
        let (commands, watches) = (batcher(Purpose::Commands), batcher(Purpose::Watches));
        Self { way, commands, watches }
    }
}

impl<D: Dial> Drop for Connections<D> {
    fn drop(&mut self) {
        self.commands.end();
        self.watches.end();
    }
}

impl<D: Dial> fmt::Debug for Connections<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("name", &self.way.name).finish_non_exhaustive()
    }
}

impl<D: Dial> Carrier for Connections<D> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.way.name)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ORDERED | Capabilities::WATCH | Capabilities::PUSH
    }

    fn connect_limit(&self) -> Duration {
        self.way.settings.limits.connect
    }

    fn begin(self: Arc<Self>, call: Call) -> Result<(), NotSent> {
        match call.operation() {
            Operation::Watch { .. } => self.watches.begin(call),
            _ => self.commands.begin(call),
        }
    }
}
