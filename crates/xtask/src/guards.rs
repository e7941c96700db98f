//! The rules that the compiler does not know.

mod dependencies;
mod packages;

use crate::cmd::Outcome;
use crate::metadata::Metadata;

/// Checks all of them, and reports every breach, not only the first.
pub(crate) fn check() -> Outcome {
    let metadata = Metadata::read()?;
    let mut breaches = dependencies::breaches(&metadata);
    breaches.extend(dependencies::tree_breaches()?);
    breaches.extend(packages::breaches(&metadata)?);
    if breaches.is_empty() { Ok(()) } else { Err(format!("\n  {}", breaches.join("\n  "))) }
}
