//! `ichido gateway` in front of a service that is not Rust, on real sockets.

mod acceptance;
mod bolt;
mod bounds;
mod clients;
mod doubt;
mod edges;
mod events;
mod hops;
mod journal;
mod passing;
mod pressure;
mod recipes;
mod starting;
mod stripe;
