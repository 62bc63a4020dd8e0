//! The rules of claims: a model check of every order of events, and properties of random histories.

#![allow(clippy::unwrap_used, reason = "this crate is a test")]
#![allow(clippy::print_stdout, reason = "the number of states is part of the result")]

mod model;
mod properties;
