//! The tests of quorate-protocol on a real server, over redis-rs.

#[cfg(test)]
#[path = "../../quorate-protocol/tests/servers/conformance.rs"]
mod conformance;
#[cfg(test)]
#[path = "../../quorate-protocol/tests/servers/server.rs"]
mod server;

#[cfg(test)]
mod tcp {
    use std::borrow::Cow;

    use quorate_core::BackendError;
    use quorate_protocol::{Dial, Push};
    use quorate_redis::{RedisConnection, RedisDial};

    /// The address of a server.
    #[derive(Debug)]
    pub(crate) struct Tcp(pub(crate) String);

    impl Dial for Tcp {
        type Connection = RedisConnection;

        fn name(&self) -> Cow<'_, str> {
            Cow::Borrowed(&self.0)
        }

        async fn connect(
            &self,
            push: impl Fn(Push) + Send + Sync + 'static,
        ) -> Result<RedisConnection, BackendError> {
            let dial = RedisDial::new(format!("redis://{}", self.0)).unwrap();
            Dial::connect(&dial, push).await
        }
    }
}
