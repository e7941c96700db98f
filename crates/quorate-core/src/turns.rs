//! The turns: between the tasks of a manager, and between processes. [`ManagerState`] is the root
//! of a manager.

mod queues;
pub(crate) mod readers;
pub(crate) mod remote_wait;
pub(crate) mod tickets;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use self::queues::Queues;
use self::readers::Readers;
use crate::cluster::Cluster;
use crate::seam::runtime::lock;

/// The root of a manager, which its requests and attempts share.
pub(crate) struct ManagerState {
    pub(crate) cluster: Arc<Cluster>,
    /// Readers take no ticket.
    pub(crate) readers: Readers,
    queues: Mutex<Queues>,
}

impl ManagerState {
    pub(crate) fn new(cluster: Cluster) -> Arc<Self> {
        let (readers, queues) = Default::default();
        Arc::new(Self { cluster: Arc::new(cluster), readers, queues })
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        lock(&self.queues)
    }
}

impl fmt::Debug for ManagerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.cluster.attempts.open().len();
        f.debug_struct("ManagerState").field("open", &open).finish_non_exhaustive()
    }
}
