//! The connections of one node: one for commands and, from the first wait on, one for watches.

use std::borrow::Cow;
use std::sync::Arc;

use quorate_core::backend::{Call, Capabilities, NotSent, Operation};
use quorate_core::runtime::TokioRuntime;

use crate::batcher::{Batcher, Limits};
use crate::carrier::Carrier;
use crate::connection::Dial;
use crate::handshake::Purpose;

/// Carries calls over connections that one client makes, in order.
///
/// Clones share the connections, which end with the last of them.
#[derive(Debug)]
pub struct Connections<D: Dial> {
    both: Arc<Both<D>>,
}

#[derive(Debug)]
struct Both<D: Dial> {
    commands: Batcher<D>,
    watches: Batcher<D>,
}

impl<D: Dial> Connections<D> {
    pub(crate) fn new(dial: D, runtime: TokioRuntime, limits: Limits) -> Self {
        let dial = Arc::new(dial);
        let batcher = |purpose| Batcher::new(Arc::clone(&dial), runtime.clone(), purpose, limits);
        let (commands, watches) = (batcher(Purpose::Commands), batcher(Purpose::Watches));
        Self { both: Arc::new(Both { commands, watches }) }
    }
}

impl<D: Dial> Clone for Connections<D> {
    fn clone(&self) -> Self {
        Self { both: Arc::clone(&self.both) }
    }
}

impl<D: Dial> Carrier for Connections<D> {
    fn name(&self) -> Cow<'_, str> {
        self.both.commands.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ORDERED | Capabilities::WATCH
    }

    fn begin(&self, call: Call) -> Result<(), NotSent> {
        match call.operation() {
            Operation::Watch { .. } => self.both.watches.begin(call),
            _ => self.both.commands.begin(call),
        }
    }
}
