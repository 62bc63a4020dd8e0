//! `ichido gateway` in front of a service that is not Rust, on real sockets.

mod acceptance;
mod doubt;
mod edges;
mod passing;
mod starting;
