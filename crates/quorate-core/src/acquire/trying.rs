//! A lock that waits for no holder. It tries again only while the votes are split (O8).

use std::sync::Arc;

use futures_util::future::FutureExt;

use super::plain::give_up;
use super::request::Request;
use super::rounds::{Round, Rounds};
use crate::attempt::Attempt;
use crate::error::LockError;
use crate::turns::ManagerState;

/// Acquires the lock, if no other has it.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired, and hands the tickets over.
pub(super) async fn acquire(
    manager: &Arc<ManagerState>,
    request: &Request,
) -> Result<Arc<Attempt>, LockError> {
    let mut rounds = Rounds::new(manager, request);
    rounds.take_tickets().await?;
    while rounds.is_in_time() {
        match rounds.run(Arc::clone(&request.keys)).await? {
            Round::Won => {
                rounds.end_wait();
                return rounds.finish().await;
            }
            Round::Lost if rounds.try_again_later().boxed().await => {}
            Round::Lost | Round::Final => break,
        }
    }
    Err(give_up(&mut rounds).boxed().await)
}
