//! A client of the user's, made safe command by command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fred::clients::{Client, WithOptions};
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::ClientState;
use fred::types::config::{Options, Server};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_core::BackendError;
use quorate_core::protocol::Reply;
use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use crate::error;
use crate::frame::{Command, exchange};
use crate::window::{Place, Window};

/// A client that others use too, and that reconnects by a policy of its own.
pub(crate) struct SharedClient {
    client: WithOptions<Client>,
    watch: Mutex<Watch>,
    window: Arc<Window>,
}

/// What became of the connection since we last looked.
///
/// `fail_fast` is not enough: fred goes on saying `Connected` until the delay before its first
/// attempt to reconnect is over, and for ever if it has no policy. What is sent meanwhile waits in
/// a queue for the node to come back.
struct Watch {
    errors: Receiver<(Error, Option<Server>)>,
    connections: Receiver<Server>,
    /// How many connections were lost and not followed by another.
    losses: u64,
    /// The error that was told last, if no connection was since.
    before: Option<Error>,
    reason: Option<BackendError>,
}

impl SharedClient {
    pub(crate) fn new(client: Client) -> Self {
        // What a client's own settings say, these win.
        let options = Options {
            max_attempts: Some(1),
            timeout: Some(Duration::ZERO),
            fail_fast: true,
            ..Options::default()
        };
        let watch = Mutex::new(Watch::of(&client));
        Self { watch, client: client.with_options(&options), window: Arc::default() }
    }

    /// Sends a command once if the client is connected, and waits for the reply.
    ///
    /// While too much is under way, it waits before that, and is not sent if it is dropped.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, BackendError> {
        self.check()?;
        let size = command.size();
        let place = match self.window.place(size) {
            Some(place) => place,
            None => self.room(size).await?,
        };
        let result = exchange(&self.client, command).await;
        self.window.answered(place);
        match result {
            Ok(answer) => answer,
            Err(error) if error.is_canceled() => {
                self.check()?;
                Err(error::of_client(&error))
            }
            Err(error) => Err(error::of_client(&error)),
        }
    }

    /// Waits for a place. Apart from [`call`](Self::call), whose future would be larger for it.
    fn room(&self, size: u64) -> BoxFuture<'_, Result<Place, BackendError>> {
        let client = self.client.clone();
        let ask = move || {
            let client = client.clone();
            async move {
                let _ = exchange(&client, Command::of(&[b"PING"])).await;
            }
        };
        let room = async move {
            let runtime =
                Handle::try_current().map_err(|_| error::lost("there is no tokio runtime"))?;
            let place = self.window.wait(size, &runtime, ask).await;
            // What was lost meanwhile made the room.
            self.check().inspect_err(|_| self.window.answered(place))?;
            Ok(place)
        };
        room.boxed()
    }

    /// Fails while there is no connection, with the last reason heard of.
    fn check(&self) -> Result<(), BackendError> {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.catch_up(&self.client);
        if self.client.state() == ClientState::Connected && watch.losses == 0 {
            return Ok(());
        }
        let reason = watch.reason.clone();
        Err(reason.unwrap_or_else(|| error::lost("the client is not connected")))
    }
}

impl Watch {
    fn of(client: &Client) -> Self {
        // In this order a loss between the two is heard of by the connection after it, at the most.
        let connections = client.reconnect_rx();
        Self { errors: client.error_rx(), connections, losses: 0, before: None, reason: None }
    }

    fn catch_up(&mut self, client: &Client) {
        // A connection that is told from here on waits for the next look: the loss before it may not
        // be seen in this one.
        let made = self.connections.len();
        if self.hear_of_losses().and_then(|()| self.hear_of_connections(made)).is_err() {
            // The client was closed with `quit`, and may be opened again.
            *self = Self::of(client);
        }
    }

    fn hear_of_losses(&mut self) -> Result<(), Closed> {
        loop {
            match self.errors.try_recv() {
                Ok((error, server)) => {
                    // What a node says before it ends the connection may be told by itself, too.
                    let told =
                        *error.kind() != ErrorKind::IO && self.before.as_ref() == Some(&error);
                    match server {
                        Some(_) if !told => self.losses += 1,
                        // An attempt that failed.
                        _ => self.losses = self.losses.max(1),
                    }
                    self.reason = Some(error::of_client(&error));
                    self.before = Some(error);
                }
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Closed) => return Err(Closed),
            }
        }
    }

    /// Each loss is followed by a connection, in the end.
    fn hear_of_connections(&mut self, mut made: usize) -> Result<(), Closed> {
        while made > 0 {
            match self.connections.try_recv() {
                Ok(_) => {
                    self.losses = self.losses.saturating_sub(1);
                    self.before = None;
                    made -= 1;
                }
                Err(TryRecvError::Lagged(missed)) => {
                    self.losses = self.losses.saturating_sub(missed);
                    made = made.saturating_sub(usize::try_from(missed).unwrap_or(usize::MAX));
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Closed) => return Err(Closed),
            }
        }
        Ok(())
    }
}

/// One of the two is closed, and another was opened in its place.
struct Closed;

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::{Sender, channel};

    use super::*;

    struct Told {
        errors: Sender<(Error, Option<Server>)>,
        connections: Sender<Server>,
    }

    impl Told {
        fn watched() -> (Self, Watch) {
            let ((errors, lost), (connections, made)) = (channel(32), channel(32));
            let watch =
                Watch { errors: lost, connections: made, losses: 0, before: None, reason: None };
            (Self { errors, connections }, watch)
        }

        fn loss(&self, error: &Error) {
            self.errors.send((error.clone(), Some(Server::new("node", 1)))).unwrap();
        }

        fn failed_attempt(&self) {
            self.errors.send((broken(), None)).unwrap();
        }

        fn connection(&self) {
            self.connections.send(Server::new("node", 1)).unwrap();
        }
    }

    fn broken() -> Error {
        Error::new(ErrorKind::IO, "broken pipe")
    }

    fn is_lost(watch: &mut Watch) -> bool {
        watch.catch_up(&Client::default());
        watch.losses > 0
    }

    #[test]
    fn a_connection_follows_each_loss_however_many_attempts_it_takes() {
        let (told, mut watch) = Told::watched();
        assert!(!is_lost(&mut watch));
        told.loss(&broken());
        assert!(is_lost(&mut watch));
        told.failed_attempt();
        told.failed_attempt();
        assert!(is_lost(&mut watch));
        told.connection();
        assert!(!is_lost(&mut watch));
    }

    #[test]
    fn what_is_lost_again_before_anybody_looks_is_lost() {
        let (told, mut watch) = Told::watched();
        told.loss(&broken());
        told.connection();
        told.loss(&broken());
        assert!(is_lost(&mut watch));
        told.connection();
        assert!(!is_lost(&mut watch));
    }

    #[test]
    fn a_loss_that_is_told_twice_is_one() {
        let (told, mut watch) = Told::watched();
        let says = Error::new(ErrorKind::Unknown, "LOADING");
        told.loss(&says);
        assert!(is_lost(&mut watch), "between the two");
        told.loss(&says);
        assert!(is_lost(&mut watch));
        told.connection();
        assert!(!is_lost(&mut watch));
    }

    #[test]
    fn what_is_told_while_one_looks_is_seen_as_a_whole_at_the_next_look() {
        let (told, mut watch) = Told::watched();
        let made = watch.connections.len();
        assert!(watch.hear_of_losses().is_ok());
        told.loss(&broken());
        told.connection();
        assert!(watch.hear_of_connections(made).is_ok());
        assert!(!is_lost(&mut watch));
    }
}
