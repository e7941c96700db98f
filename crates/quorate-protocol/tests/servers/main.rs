//! The protocol on a real `redis-server`, over a plain TCP client that quorate does not ship.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tcp;
