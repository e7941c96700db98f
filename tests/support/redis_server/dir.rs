//! A directory that goes with its owner.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A directory of one test.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes one, with nothing in it. The name is short: a unix socket's path has room for about a hundred bytes.
    pub fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("quorate-{}-{number}", process::id()));
        // One of an earlier process with this id.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a directory for temporary files");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
