//! `ichido gateway` in front of a service that is not Rust, on real sockets.

mod acceptance;
mod clients;
mod doubt;
mod edges;
mod journal;
mod passing;
mod starting;
