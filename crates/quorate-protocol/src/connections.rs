//! The connections of one node: one for commands and, from the first wait on, one for watches.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{Call, Capabilities, NotSent, Operation};

use crate::batcher::{Batcher, Settings, Way};
use crate::carrier::Carrier;
use crate::connection::Dial;
use crate::handshake::Purpose;

/// Carries calls over connections that one client makes, in order. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Connections<D: Dial> {
    commands: Batcher<D>,
    watches: Batcher<D>,
}

impl<D: Dial> Connections<D> {
    pub(crate) fn new(dial: D, settings: &Settings<D>) -> Self {
        let way = Arc::new(Way::new(dial, settings));
        let batcher = |purpose| Batcher::new(Arc::clone(&way), purpose, settings);
        Self { commands: batcher(Purpose::Commands), watches: batcher(Purpose::Watches) }
    }
}

impl<D: Dial> Carrier for Connections<D> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.commands.name())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ORDERED | Capabilities::WATCH | Capabilities::PUSH
    }

    fn connect_limit(&self) -> Duration {
        self.commands.connect_limit()
    }

    fn begin(self: Arc<Self>, call: Call) -> Result<(), NotSent> {
        match call.operation() {
            Operation::Watch { .. } => self.watches.begin(call),
            _ => self.commands.begin(call),
        }
    }
}
