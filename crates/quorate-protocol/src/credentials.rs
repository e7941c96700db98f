//! Logins that change while the program runs: asked for at each new connection, or when one was
//! refused.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use quorate_core::{BackendError, BackendErrorKind};

/// A user and a password. `Debug` shows neither (A6).
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: a login")]
pub struct Credentials {
    /// The user; `None` for the default one.
    pub user: Option<String>,
    /// The password, which is a secret.
    pub password: String,
}

impl Credentials {
    /// The login of an ACL user.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// The login of the default user.
    #[must_use]
    pub fn of_password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// What is asked about a node, by its name. Clones share it.
pub struct Source<T> {
    ask: Arc<dyn Fn(String) -> BoxFuture<'static, T> + Send + Sync>,
}

/// What is asked for the login of each new connection.
pub type CredentialSource = Source<Result<Credentials, BackendError>>;

impl<T> Source<T> {
    /// A source that calls `ask` with the name of the node.
    pub fn new<F>(ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        Self { ask: Arc::new(move |node| ask(node).boxed()) }
    }

    /// Asks about `node`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of the source.
    pub async fn ask(&self, node: &str) -> T {
        (self.ask)(node.to_owned()).await
    }
}

impl CredentialSource {
    /// A source whose failure is a [`BackendErrorKind::Connection`], with its error in the text.
    pub fn of_logins<F, E>(ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let failure = |error: E| {
            let text = format!("no credentials: {}", error.into());
            BackendError::new(BackendErrorKind::Connection, text)
        };
        Self::new(move |node| ask(node).map(move |asked| asked.map_err(failure)))
    }
}

impl<T> Clone for Source<T> {
    fn clone(&self) -> Self {
        Self { ask: Arc::clone(&self.ask) }
    }
}

impl<T> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[test]
    fn a6_credentials_are_in_no_debug_and_an_error_names_the_reason() {
        let login = Credentials::new("ann", "hunter2");
        let source = CredentialSource::of_logins(move |_| ready(Ok::<_, String>(login.clone())));
        let found = source.ask("n1").now_or_never().unwrap().unwrap();
        assert_eq!((found.user.as_deref(), &*found.password), (Some("ann"), "hunter2"));
        assert_eq!(Credentials::of_password("hunter2").user, None);
        let shown = format!("{source:?} {found:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("ann"), "{shown}");

        let fails =
            CredentialSource::of_logins(|node| ready(Err(format!("{node} is in no vault"))));
        let error = fails.ask("n1").now_or_never().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "no credentials: n1 is in no vault");
        assert!(error.kind() == BackendErrorKind::Connection && !error.kind().is_permanent());
    }
}
