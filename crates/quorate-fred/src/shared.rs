//! A client of the user's, made safe command by command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fred::clients::{Client, WithOptions};
use fred::error::Error;
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
    is_lost: bool,
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
        if self.client.state() == ClientState::Connected && !watch.is_lost {
            return Ok(());
        }
        let reason = watch.reason.clone();
        Err(reason.unwrap_or_else(|| error::lost("the client is not connected")))
    }
}

impl Watch {
    fn of(client: &Client) -> Self {
        Self {
            errors: client.error_rx(),
            connections: client.reconnect_rx(),
            is_lost: false,
            reason: None,
        }
    }

    fn catch_up(&mut self, client: &Client) {
        loop {
            match self.errors.try_recv() {
                Ok((error, _)) => {
                    self.is_lost = true;
                    self.reason = Some(error::of_client(&error));
                }
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty) => break,
                // The client was closed with `quit`, and may be opened again.
                Err(TryRecvError::Closed) => {
                    *self = Self::of(client);
                    return;
                }
            }
        }
        // Each loss is followed by a connection, so a connection is the later of the two. If it
        // is not (lost again, and no call in between), fred answers for the rest of its delay.
        loop {
            match self.connections.try_recv() {
                Ok(_) => self.is_lost = false,
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
    }
}
