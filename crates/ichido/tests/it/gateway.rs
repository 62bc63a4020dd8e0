//! `ichido gateway` in front of a service that is not Rust, on real sockets.

mod acceptance;
mod bolt;
mod bounds;
mod clients;
mod cors;
mod doubt;
mod edges;
mod events;
mod fallback;
mod hops;
mod journal;
mod lost_data;
mod passing;
mod pressure;
mod proxies;
mod recipes;
mod shutdown;
mod starting;
mod stripe;
