//! Nodes over redis-rs: what a user sees of addresses, connections, pools and failures.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod login;
#[cfg(test)]
mod peer;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod runtimes;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod watches;
