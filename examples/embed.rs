//! Locking inside a library of yours, which leaves the choice of nodes and runtime to its users.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use quorate::memory::MemoryNode;
use quorate::runtime::{SmolRuntime, TokioRuntime};
use quorate::{BuildError, LockBackend, LockError, LockManager, Runtime};

/// What your library offers. No client and no runtime shows in its type.
#[derive(Debug)]
pub struct Reports {
    locks: LockManager,
}

impl Reports {
    /// Takes whatever nodes and runtime the application has.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if no lock can be made of them.
    pub fn new(
        runtime: impl Runtime,
        nodes: Vec<Arc<dyn LockBackend>>,
    ) -> Result<Self, BuildError> {
        let locks = LockManager::builder(nodes).runtime(runtime).key_prefix("reports:").build()?;
        Ok(Self { locks })
    }

    /// Writes a report, unless another process is writing it.
    ///
    /// # Errors
    ///
    /// [`ReportError`], in terms of your library.
    pub async fn write(&self, name: &str) -> Result<String, ReportError> {
        let lock = match self.locks.lock(name).no_wait().await {
            Ok(lock) => lock,
            Err(LockError::Held(_)) => return Err(ReportError::InProgress),
            Err(error) => return Err(ReportError::Unavailable(error)),
        };
        let report = format!("report {name}");
        // Dropping the guard would release it as well, without an answer.
        lock.release().await.map_err(|_| ReportError::Overtaken)?;
        Ok(report)
    }
}

/// Why there is no report.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReportError {
    /// Another process writes it right now.
    InProgress,
    /// Another process may have begun to write it, too.
    Overtaken,
    /// The lock cannot be acquired: the source says why.
    Unavailable(LockError),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress => f.write_str("the report is being written"),
            Self::Overtaken => f.write_str("the report may have been written twice"),
            Self::Unavailable(_) => f.write_str("the lock is not to be had"),
        }
    }
}

impl Error for ReportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(error),
            Self::InProgress | Self::Overtaken => None,
        }
    }
}

fn nodes(runtime: impl Runtime + Clone) -> Vec<Arc<dyn LockBackend>> {
    MemoryNode::cluster(3, runtime).into_iter().map(|node| Arc::new(node) as _).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let on_tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = on_tokio.block_on(async {
        let runtime = TokioRuntime::new();
        Reports::new(runtime.clone(), nodes(runtime))?.write("sales").await.map_err(Box::from)
    });
    let report: Result<String, Box<dyn Error>> = report;
    println!("{} on tokio", report?);

    let runtime = SmolRuntime::new();
    let reports = Reports::new(runtime, nodes(runtime))?;
    println!("{} on smol", quorate_examples::block_on(reports.write("sales"))?);
    Ok(())
}
