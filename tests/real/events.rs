//! The warnings of the library, by node.

use std::io;
use std::sync::{Mutex, Once};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has the warnings of all threads noted from here on.
pub(crate) fn listen() {
    static INSTALLED: Once = Once::new();
    let warnings = || tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
    INSTALLED.call_once(|| warnings().with_ansi(false).with_writer(|| Notes).init());
}

/// The warnings `what` about the node at this address.
pub(crate) fn warnings(what: &str, address: &str) -> Vec<String> {
    let node = address.trim_start_matches("redis://");
    let (what, node) = (format!(" quorate: {what} "), format!("{node}\""));
    let is_it = |it: &&String| it.contains(&what) && it.contains(&node);
    WARNINGS.lock().unwrap().iter().filter(is_it).cloned().collect()
}

struct Notes;

impl io::Write for Notes {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        WARNINGS.lock().unwrap().push(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
