//! The protocol on a real `redis-server`, over a client that nobody asked for.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tcp;
