//! `ichido gateway` in front of a service in another language, over real sockets.

mod acceptance;
mod backpressure;
mod bolt;
mod cors;
mod edge_cases;
mod events;
mod fallback;
mod hop_by_hop;
mod in_doubt;
mod journal;
mod limits;
mod pass_through;
mod proxies;
mod recipes;
mod redis_data_loss;
mod shutdown;
mod startup;
mod stripe_node;
mod stripe_python;
