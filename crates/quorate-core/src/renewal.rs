//! Keeps a lease alive: one extension after the other, until the lease ends.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;

use crate::driver::Flight;
use crate::error::{Lost, Votes};
use crate::lease::Tenure;
use crate::manager::random_bits;

/// Renews until the lease is given up or lost. Runs in a task of its own, or in its holder's.
///
/// A renewal that fails is tried again until the margin before the end. Only if so many nodes
/// say that the keys are gone that no quorum can have them is the lease lost at once.
pub(crate) async fn renew(tenure: Arc<Tenure>) {
    let runtime = &*tenure.attempt.cluster.runtime;
    let ttl = tenure.attempt.claim.ttl();
    let mut late: Option<Flight> = None;
    let mut failed = false;
    while let Ok(notice) = tenure.notice() {
        // Without randomness the moment is the same for all, which is worse, but not wrong.
        let random = random_bits(runtime).unwrap_or_default();
        let due = if failed && planted!("failed_renewal_is_not_repeated") {
            notice
        } else if failed {
            tenure.retry_at(random)
        } else {
            tenure.renew_at(random)
        };
        let next = due.min(notice);
        {
            let hears = pin!(async {
                if let Some(flight) = &mut late {
                    flight.linger().await;
                }
                pending::<()>().await;
            });
            select(pin!(tenure.ended_by(next)), hears).await;
        }
        if next == notice || runtime.now() < next {
            continue;
        }
        // What has not answered by now goes on in the background.
        late = None;
        match tenure.extend(ttl).await {
            Ok(flight) => (failed, late) = (false, Some(flight)),
            Err(_) if planted!("one_failed_renewal_ends_the_lease") => {
                tenure.end(Lost::Expired { votes: Votes::default() });
            }
            Err(_) => failed = true,
        }
    }
}
