//! The async runtime, where the system has the descriptors for it.

use std::io;
use std::os::unix::net::UnixDatagram;

use tokio::runtime::{Builder, Runtime};

use crate::exit::Failure;

/// As many as the runtime takes, and two to start a command. Each node takes one more.
const NEEDED: usize = 8;

/// Makes the runtime. Without enough descriptors, it would panic.
pub(crate) fn build() -> Result<Runtime, Failure> {
    let taken: io::Result<Vec<_>> = (0..NEEDED).map(|_| UnixDatagram::unbound()).collect();
    drop(taken?);
    Ok(Builder::new_current_thread().enable_all().build()?)
}
