//! Asks all nodes at the same time, and waits for each until a node timeout has passed.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::{Inspection, KeyState, NodeView};
use crate::backend::{BackendError, BackendErrorKind, Sighting};
use crate::over::access::{saturating_add, unless};
use crate::resource::Key;
use crate::runtime::{BoxFuture, Runtime};
use crate::{IntoResource, InvalidResource, LockBackend, LockManager};

impl LockManager {
    /// Shows who holds the lock on `resource`, and for how long, without acquiring it.
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. What fails on a node is in its
    /// view. The result is about the past: only an acquire shows whether a lock can be acquired.
    ///
    /// ```
    /// use quorate_core::{InvalidResource, LockManager, operators::LockState};
    ///
    /// async fn show(locks: &LockManager) -> Result<(), InvalidResource> {
    ///     let inspection = locks.inspect("orders:42").await?;
    ///     match (inspection.state(), inspection.time_left()) {
    ///         (LockState::Held, Some(left)) => println!("held for {left:.1?}, if not extended"),
    ///         (LockState::Free, _) => println!("free"),
    ///         _ => println!("{inspection}"), // what each node said
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidResource`]: the name cannot be locked.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it only reads.
    pub async fn inspect(
        &self,
        resource: impl IntoResource,
    ) -> Result<Inspection, InvalidResource> {
        let key = Key::new(&self.cluster().config.key_prefix, &resource.into_resource()?);
        Ok(self.ask_all(|node| node.inspect(&key)).await)
    }

    /// What each node answers within a node timeout, and until it has answered once, within its connect limit as well.
    pub(crate) async fn ask_all<'a>(
        &'a self,
        ask: impl Fn(&'a dyn LockBackend) -> BoxFuture<'a, Result<Option<Sighting>, BackendError>>
        + Sync,
    ) -> Inspection {
        let (cluster, ask) = (self.cluster(), &ask);
        let (nodes, node_timeout) = (&cluster.nodes, cluster.config.default_node_timeout());
        let calls = nodes.count().ids().map(|id| {
            let backend = &**nodes.backend(id);
            let limit = node_timeout.saturating_add(nodes.connect_limit(id));
            let call = async move {
                let reply = ask(backend).await;
                nodes.note_connected(id, &reply);
                reply
            };
            (Arc::clone(nodes.name(id)), limit, call)
        });
        inspect(&*cluster.runtime, calls).await
    }
}

/// Waits for each node's reply, for its limit at most. `nodes` are the nodes' names, limits and
/// calls, in the order in which they are configured: inspections, or revokes, which return what they found.
///
/// # Cancel safety
///
/// The future can be dropped at any time. No task is spawned.
async fn inspect<F>(
    runtime: &dyn Runtime,
    nodes: impl IntoIterator<Item = (Arc<str>, Duration, F)>,
) -> Inspection
where
    F: Future<Output = Result<Option<Sighting>, BackendError>>,
{
    let begun = runtime.now();
    let calls = nodes.into_iter().map(|(name, limit, call)| async move {
        let deadline = saturating_add(begun, limit);
        (name, limit, reply(runtime, deadline, call).await, runtime.now())
    });
    let replies = join_all(calls).await;
    let end = runtime.now();
    let views = replies.into_iter().map(|(name, limit, reply, at)| {
        let no_reply = KeyState::NoReply { waited: limit };
        let age = end.saturating_duration_since(at);
        NodeView { name, state: reply.map_or(no_reply, |reply| KeyState::of(reply, age)) }
    });
    Inspection { nodes: views.collect() }
}

/// The reply of one node; `None` without one until `deadline`. A panic in the backend is an error.
pub(crate) async fn reply<T>(
    runtime: &dyn Runtime,
    deadline: Instant,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Option<Result<T, BackendError>> {
    let call = pin!(AssertUnwindSafe(call).catch_unwind());
    let panicked = |_| Err(BackendError::new(BackendErrorKind::Other, "the backend panicked"));
    let reply = unless(call, runtime.sleep_until(deadline)).await;
    reply.map(|reply| reply.unwrap_or_else(panicked))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::backend::Holder;
    use crate::runtime::{BoxFuture, EntropyError};

    const MS: Duration = Duration::from_millis(1);

    /// A clock that jumps to the deadline of a sleep when the sleep is polled.
    #[derive(Debug)]
    struct Jumping(Arc<Mutex<Instant>>);

    impl Runtime for Jumping {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
            let clock = Arc::clone(&self.0);
            Box::pin(async move {
                *clock.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
            })
        }

        fn spawn(&self, _: BoxFuture<'static, ()>) {
            panic!("an inspection spawns no task");
        }

        fn fill_random(&self, _: &mut [u8]) -> Result<(), EntropyError> {
            panic!("an inspection needs no randomness");
        }
    }

    #[test]
    fn each_node_has_one_node_timeout_and_earlier_replies_age() {
        type Call = BoxFuture<'static, Result<Option<Sighting>, BackendError>>;
        let sighting = |left| Sighting::new(Holder::new(*b"a"), left);
        let calls: [Call; 7] = [
            Box::pin(ready(Ok(Some(sighting(Some(9_500 * MS)))))),
            Box::pin(ready(Ok(Some(sighting(Some(400 * MS)))))),
            Box::pin(pending()),
            Box::pin(pending()),
            // These are ready at the deadline, and still count (T5).
            Box::pin(ready(Ok(None))),
            Box::pin(ready(Err(BackendError::new(BackendErrorKind::Loading, "LOADING")))),
            Box::pin(async { panic!("on purpose") }),
        ];
        let runtime = Jumping(Arc::new(Mutex::new(Instant::now())));
        let nodes =
            (1..).zip(calls).map(|(number, call)| (format!("n{number}").into(), 500 * MS, call));
        let seen = inspect(&runtime, nodes).now_or_never().unwrap();
        let views = seen.nodes().iter().map(|node| format!("{}: {}", node.name, node.state));
        assert_eq!(
            views.collect::<Vec<_>>(),
            [
                "n1: held, 9.0s left",
                "n2: held, 0.0ns left",
                "n3: no reply within 500.0ms",
                "n4: no reply within 500.0ms",
                "n5: free",
                "n6: LOADING",
                "n7: the backend panicked",
            ]
        );
    }
}
