//! memory
mod fault;
mod node;
mod reply;
mod rng;
mod sim;
mod store;

pub use fault::Fault;
pub use node::MemoryNode;
pub use sim::Sim;
pub use store::Value;
