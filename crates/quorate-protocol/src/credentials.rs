//! Logins that change while the program runs: asked for at each new connection, or when one was
//! refused.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt as _};
use quorate_core::{BackendError, BackendErrorKind};

/// A user and a password. `Debug` shows neither (A6).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
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

    /// The user; `None` for the default one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, which is a secret.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// What is asked for the login of each new connection. Clones share it.
#[derive(Clone)]
pub struct CredentialSource {
    ask: Arc<dyn Fn(String) -> Asked + Send + Sync>,
}

type Asked = BoxFuture<'static, Result<Credentials, Box<dyn Error + Send + Sync>>>;

impl CredentialSource {
    /// A source that calls `ask` with the name of the node.
    pub fn new<F, E>(ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let ask = move |node| ask(node).map(|asked| asked.map_err(Into::into)).boxed();
        Self { ask: Arc::new(ask) }
    }

    /// The login for a new connection to `node`.
    ///
    /// # Errors
    ///
    /// The source failed: [`BackendErrorKind::Connection`], with its error in the text.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of the source.
    pub async fn credentials(&self, node: &str) -> Result<Credentials, BackendError> {
        (self.ask)(node.to_owned()).await.map_err(|error| {
            let text = format!("no credentials: {error}");
            BackendError::new(BackendErrorKind::Connection, text)
        })
    }
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialSource(..)")
    }
}

/// What is asked how to connect to a node from now on, by a `D`, when the node has refused the
/// login or a certificate.
///
/// Clones share what it has returned: let each node have [one of its own](Self::of_node).
pub struct Again<D> {
    ask: Arc<dyn Fn(String) -> BoxFuture<'static, Option<D>> + Send + Sync>,
    latest: Arc<Mutex<Option<D>>>,
}

impl<D: Clone> Again<D> {
    /// Calls `ask` with the name of the node.
    pub fn new<F>(ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<D>> + Send + 'static,
    {
        Self { ask: Arc::new(move |node| ask(node).boxed()), latest: Arc::default() }
    }

    /// The same question, for another node.
    #[must_use]
    pub fn of_node(&self) -> Self {
        Self { ask: Arc::clone(&self.ask), latest: Arc::default() }
    }

    /// What was last returned.
    #[must_use]
    pub fn latest(&self) -> Option<D> {
        self.lock().clone()
    }

    /// Asks, and keeps what is returned. Whether that is anything.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops that of the question, and keeps what was there.
    pub async fn ask(&self, node: &str) -> bool {
        let Some(found) = (self.ask)(node.to_owned()).await else { return false };
        *self.lock() = Some(found);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Option<D>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D> Clone for Again<D> {
    fn clone(&self) -> Self {
        Self { ask: Arc::clone(&self.ask), latest: Arc::clone(&self.latest) }
    }
}

impl<D> fmt::Debug for Again<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Again(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[test]
    fn a6_credentials_are_in_no_debug_and_an_error_names_the_reason() {
        let login = Credentials::new("ann", "hunter2");
        let source = CredentialSource::new(move |_| ready(Ok::<_, String>(login.clone())));
        let found = source.credentials("n1").now_or_never().unwrap().unwrap();
        assert_eq!((found.user(), found.password()), (Some("ann"), "hunter2"));
        assert_eq!(Credentials::of_password("hunter2").user(), None);
        let shown = format!("{source:?} {found:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("ann"), "{shown}");

        let fails = CredentialSource::new(|node| ready(Err(format!("{node} is in no vault"))));
        let error = fails.credentials("n1").now_or_never().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "no credentials: n1 is in no vault");
        assert!(error.kind() == BackendErrorKind::Connection && !error.kind().is_permanent());
    }
}
