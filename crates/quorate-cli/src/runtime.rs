//! The async runtime, where the system has the descriptors and the threads for it.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::thread;

use tokio::runtime::{Builder, Runtime};

use crate::exit::Failure;

/// As many as the runtime takes, and two to start a command. Each node takes one more.
const NEEDED: usize = 8;

/// Makes the runtime. Without enough descriptors it would panic, and without a thread no name of a
/// host is looked up.
pub(crate) fn build() -> Result<Runtime, Failure> {
    let taken: io::Result<Vec<_>> = (0..NEEDED).map(|_| UnixDatagram::unbound()).collect();
    drop(taken?);
    let _ = thread::Builder::new().spawn(|| ())?.join();
    Ok(Builder::new_current_thread().enable_all().build()?)
}
