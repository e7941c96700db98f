//! A node in memory of which a test changes one thing: its methods, or how it begins calls.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use quorate_core::backend::{
    AcquireOptions, Asked, Call, CallResult, Capabilities, Claim, ExtendOptions, NotSent,
    Operation, ReleaseOptions, Reply, ask,
};
use quorate_core::runtime::BoxFuture;
use quorate_core::{BackendError, LockBackend, Runtime};
use quorate_memory::MemoryNode;
use quorate_memory::conformance::Testbed as _;

type Before = dyn Fn(&'static str) -> BoxFuture<'static, Result<(), BackendError>> + Send + Sync;
type Begin = dyn Fn(&MemoryNode, Call, &dyn Runtime) -> Result<(), NotSent> + Send + Sync;

/// A node with the three required methods, until more is asked for.
#[derive(Clone)]
pub(crate) struct Odd {
    node: Arc<dyn Fn() -> MemoryNode + Send + Sync>,
    name: String,
    capabilities: Capabilities,
    names_no_holder: bool,
    before: Option<Arc<Before>>,
}

impl Odd {
    pub(crate) fn new(node: &MemoryNode) -> Self {
        let node = node.clone();
        Self::leading_to(move || node.clone())
    }

    /// An address that leads to one node now, and to another later.
    pub(crate) fn leading_to(node: impl Fn() -> MemoryNode + Send + Sync + 'static) -> Self {
        let (name, capabilities) = (String::new(), Capabilities::NONE);
        let node = Arc::new(node);
        let (names_no_holder, before) = (false, None);
        Self { node, name, capabilities, names_no_holder, before }
    }

    /// Its refusals do not say who holds the keys, as those of servers before Redis 7.
    pub(crate) fn without_names(self) -> Self {
        Self { names_no_holder: true, ..self }
    }

    pub(crate) fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    pub(crate) fn able(self, capabilities: Capabilities) -> Self {
        Self { capabilities, ..self }
    }

    /// Runs this before a method is carried out, named for it; its error is the answer.
    pub(crate) fn before<F>(self, before: F) -> Self
    where
        F: Fn(&'static str) -> BoxFuture<'static, Result<(), BackendError>> + Send + Sync + 'static,
    {
        Self { before: Some(Arc::new(before)), ..self }
    }

    /// The node, when all that comes before a method has been done.
    async fn node(&self, method: &'static str) -> Result<MemoryNode, BackendError> {
        if let Some(before) = &self.before {
            before(method).await?;
        }
        Ok((self.node)())
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.node)().fmt(f)
    }
}

#[async_trait]
impl LockBackend for Odd {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        let node = self.node("acquire").await?;
        let mut reply = node.acquire(claim, options).await?;
        reply.holder = reply.holder.filter(|_| !self.names_no_holder);
        Ok(reply)
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.node("extend").await?.extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        let can_fence = self.capabilities.contains(Capabilities::FENCING);
        assert!(can_fence || options.raise_to.is_none(), "it was not built for fencing");
        self.node("release").await?.release(claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn perform(&self, call: &Call) -> CallResult {
        let (method, needs) = match call.operation() {
            Operation::Inspect { .. } => ("inspect", Capabilities::INSPECT),
            Operation::Describe => ("describe", Capabilities::DESCRIBE),
            Operation::ServerId => ("server_id", Capabilities::SERVER_ID),
            _ => return Err(BackendError::unsupported("this node lacks the operation")),
        };
        if !self.capabilities.contains(needs) {
            return Err(BackendError::unsupported("this node lacks the operation"));
        }
        asked(&self.node(method).await?, call.operation().clone()).await
    }
}

/// A node that begins its calls in another way.
#[derive(Clone)]
pub(crate) struct Begins {
    node: MemoryNode,
    name: String,
    capabilities: Capabilities,
    begin: Arc<Begin>,
}

impl Begins {
    pub(crate) fn new<B>(node: &MemoryNode, begin: B) -> Self
    where
        B: Fn(&MemoryNode, Call, &dyn Runtime) -> Result<(), NotSent> + Send + Sync + 'static,
    {
        let (name, capabilities) = (node.name().to_owned(), node.capabilities());
        let (node, begin) = (node.clone(), Arc::new(begin));
        Self { node, name, capabilities, begin }
    }

    pub(crate) fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    pub(crate) fn able(self, capabilities: Capabilities) -> Self {
        Self { capabilities, ..self }
    }
}

impl fmt::Debug for Begins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

/// Begins a call as the node itself does.
pub(crate) fn begin(node: &MemoryNode, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
    Arc::new(node.clone()).begin(call, runtime)
}

/// What a node answers to an operation.
pub(crate) fn asked(node: &MemoryNode, operation: Operation) -> Asked {
    let runtime = node.runtime();
    ask(operation, runtime.now(), |call| begin(node, call, &runtime))
}

/// What the node answers, at once.
pub(crate) fn answer_of(node: &MemoryNode, call: &Call, runtime: &dyn Runtime) -> CallResult {
    let asked = ask(call.operation().clone(), runtime.now(), |call| begin(node, call, runtime));
    asked.now_or_never().expect("without a delay it is answered inside")
}

#[async_trait]
impl LockBackend for Begins {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.node.acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.node.extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.node.release(claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connect_limit(&self) -> Duration {
        self.node.connect_limit()
    }

    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        (self.begin)(&self.node, call, runtime)
    }
}
