//! Where calls wait while the connection is being made.
//!
//! Each by itself, they would leave one after the other once it is there. So they wait in one place,
//! and go on together to the task that carries calls.

use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorate_core::BackendError;

use crate::carrier::Carried;
use crate::dialer::Failure;
use crate::error;
use crate::link::Link;

/// With how many those are looked through that nobody waits for any more.
const MANY: usize = 1024;

/// The calls that wait for one attempt to connect.
#[derive(Default)]
pub(crate) struct Lobby {
    state: Mutex<State>,
    /// Set under the lock, once all have gone on. Every later call looks at it, without the lock.
    is_closed: AtomicBool,
}

struct State {
    calls: Vec<Carried>,
    many: usize,
}

impl Default for State {
    fn default() -> Self {
        Self { calls: Vec::new(), many: MANY }
    }
}

impl Lobby {
    /// Whether a call would wait here.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Takes a call, or gives it back if nobody waits here any more.
    pub(crate) fn enter(&self, carried: Carried) -> Result<(), Carried> {
        let mut state = self.state();
        if !self.is_open() {
            return Err(carried);
        }
        state.calls.push(carried);
        if state.calls.len() < state.many {
            return Ok(());
        }
        let (calls, given_up): (Vec<_>, Vec<_>) =
            take(&mut state.calls).into_iter().partition(Carried::is_wanted);
        state.many = (2 * calls.len()).max(MANY);
        state.calls = calls;
        drop(state);
        // To drop a call is to answer it, and whoever hears that may come in here again.
        drop(given_up);
        Ok(())
    }

    /// All go on over `link`, if there is one. Until they have, nobody passes them.
    fn empty(&self, outcome: Result<Arc<Link>, BackendError>) {
        let mut state = self.state();
        let calls = take(&mut state.calls);
        match outcome {
            Ok(link) => {
                let left: Vec<_> =
                    calls.into_iter().filter_map(|call| link.carry(call).err()).collect();
                self.is_closed.store(true, Ordering::Release);
                drop(state);
                left.into_iter().for_each(|call| call.fails(&error::ended()));
            }
            Err(error) => {
                self.is_closed.store(true, Ordering::Release);
                drop(state);
                calls.into_iter().for_each(|call| call.fails(&error));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who opens the door of a lobby in the end, if only because the runtime has shut down.
pub(crate) struct Porter(pub(crate) Arc<Lobby>);

impl Porter {
    /// Lets those who wait go on.
    pub(crate) fn let_go(self, outcome: Result<Arc<Link>, Failure>) {
        self.0.empty(outcome.map_err(|failure| failure.error));
    }
}

impl Drop for Porter {
    fn drop(&mut self) {
        self.0.empty(Err(error::lost("the tokio runtime of the connection has shut down")));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Context;
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::{join_all, poll_immediate};
    use futures_util::task::{ArcWake, waker};
    use quorate_core::protocol::Exchange;
    use quorate_core::runtime::os_random;
    use quorate_core::{
        Answered, Ask, BackendErrorKind, Call, Carry, Claim, Identify, Key, Resource, Token, Ttl,
    };
    use tokio::runtime::Runtime;

    use super::{Carried, Lobby, MANY};
    use crate::FredBackend;
    use crate::builder::builder;

    /// To PING, CLIENT ID and INFO.
    const WELCOME: &[u8] = b"+PONG\r\n:1\r\n$-1\r\n";

    /// A node that lets its first client in when it is told to.
    fn node() -> (FredBackend, Sender<()>, JoinHandle<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("redis://{}", listener.local_addr().unwrap());
        let (opens, door) = channel();
        let node = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            if door.recv().is_ok() {
                connection.write_all(WELCOME).unwrap();
            }
            connection
        });
        let made = builder().connect_timeout(Duration::from_secs(120)).connect([address]);
        (made.unwrap().remove(0), opens, node)
    }

    fn claim(number: usize) -> Claim {
        let key = Key::new(b"", &Resource::new(format!("lock:{number}")).unwrap());
        let ttl = Ttl::try_from(Duration::from_secs(10)).unwrap();
        Claim::new([key], Token::draw(os_random).unwrap(), ttl)
    }

    fn carry(backend: &FredBackend, number: usize) -> Answered {
        let (call, answered) = Call::apart(Ask::Acquire, claim(number));
        backend.carry(call);
        answered
    }

    /// What a node is sent until `end` has come.
    fn read_until(connection: &mut TcpStream, end: &str) -> String {
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains(end) {
            let mut more = [0; 4096];
            let count = connection.read(&mut more).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&heard));
            heard.extend(&more[..count]);
        }
        String::from_utf8_lossy(&heard).into_owned()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn calls_that_come_while_a_node_is_dialled_leave_together() {
        let (backend, opens, node) = node();
        assert!(!backend.carries(&claim(0)), "nobody dials");
        let mut id = std::pin::pin!(backend.server_id());
        assert!(poll_immediate(id.as_mut()).await.is_none());
        assert!(backend.carries(&claim(0)));
        let answers: Vec<_> = (0..40).map(|number| carry(&backend, number)).collect();
        drop(carry(&backend, 40));
        opens.send(()).unwrap();
        let hears = thread::spawn(move || {
            let mut connection = node.join().unwrap();
            read_until(&mut connection, "lock:39")
        });
        let heard = hears.join().unwrap();
        assert_eq!(heard.matches("EVALSHA").count(), 1, "{heard}");
        assert!((0..40).all(|number| heard.contains(&format!("lock:{number}\r\n"))), "{heard}");
        assert!(!heard.contains("lock:40"), "who has gone is not waited for: {heard}");
        assert!(!heard.contains("SET"), "{heard}");
        // The node has gone.
        for answer in join_all(answers).await {
            assert_eq!(answer.unwrap_err().kind(), BackendErrorKind::Connection);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn calls_that_wait_for_a_connection_are_told_why_there_is_none() {
        let (backend, opens, node) = node();
        let mut id = std::pin::pin!(backend.server_id());
        assert!(poll_immediate(id.as_mut()).await.is_none());
        let answered = carry(&backend, 0);
        drop(opens);
        let mut connection = node.join().unwrap();
        connection.write_all(b"-LOADING Redis is loading the dataset in memory\r\n").unwrap();
        assert_eq!(answered.await.unwrap_err().kind(), BackendErrorKind::Loading);
        assert!(!backend.carries(&claim(0)));
        assert_eq!(id.await.unwrap_err().kind(), BackendErrorKind::Loading);
    }

    #[test]
    fn calls_that_wait_for_a_connection_are_told_when_its_runtime_has_ended() {
        let (backend, _opens, _node) = node();
        let runtime = Runtime::new().unwrap();
        let backend = backend.tokio(runtime.handle().clone());
        let (answered, id) = runtime.block_on(async {
            let mut id = Box::pin(backend.server_id());
            assert!(poll_immediate(&mut id).await.is_none());
            (carry(&backend, 0), id)
        });
        runtime.shutdown_background();
        let error = smol::block_on(answered).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
        drop(id);
    }

    fn carried(number: usize) -> (Carried, Answered) {
        let (call, answered) = Call::apart(Ask::Acquire, claim(number));
        (Carried::new(call, Exchange::release()), answered)
    }

    /// An attempt may take long, and who waits for it goes and comes again.
    #[test]
    fn calls_that_nobody_waits_for_any_more_do_not_pile_up() {
        let lobby = Lobby::default();
        let (waits, _answered) = carried(0);
        assert!(lobby.enter(waits).is_ok());
        for number in 1..10 * MANY {
            let (call, answered) = carried(number);
            drop(answered);
            assert!(lobby.enter(call).is_ok());
            assert!(lobby.state().calls.len() < MANY);
        }
        assert!(lobby.state().calls.iter().any(Carried::is_wanted));
    }

    /// Comes in again when it is woken.
    struct Returns(Lobby);

    impl ArcWake for Returns {
        fn wake_by_ref(this: &Arc<Self>) {
            assert!(this.0.enter(carried(0).0).is_ok());
        }
    }

    #[test]
    fn who_hears_that_a_call_was_thrown_out_may_come_in_again() {
        let returns = Arc::new(Returns(Lobby::default()));
        let waker = waker(Arc::clone(&returns));
        let (left, mut answered) = carried(0);
        answered.forgo();
        assert!(answered.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        assert!(returns.0.enter(left).is_ok());
        for number in 1..MANY {
            let left = carried(number).0;
            assert!(returns.0.enter(left).is_ok());
        }
        assert!(answered.poll_unpin(&mut Context::from_waker(&waker)).is_ready());
        assert_eq!(returns.0.state().calls.len(), 1);
    }
}
