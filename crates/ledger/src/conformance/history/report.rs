//! A readable report of a history that no order explains.

use std::fmt::Write;

use super::checker::{self, Verdict, answered_us};
use super::model::{Bounds, Model};
use super::operation::{End, Operation};

/// The shortest prefix of the history that no order explains. Operations without a result by then are open in it.
/// So if a prefix is illegal, every longer one is too, and the shortest is found by bisection.
pub(super) fn illegal<M: Model>(
    key: &str,
    operations: &[Operation<M::Call, M::Answer>],
    bounds: &Bounds,
) -> String {
    let mut moments: Vec<u64> =
        operations.iter().map(answered_us).filter(|at_us| *at_us < u64::MAX).collect();
    moments.sort_unstable();
    let is_legal =
        |moment: &u64| checker::check::<M>(&until(operations, *moment), bounds) != Verdict::Illegal;
    let first_illegal = moments.partition_point(is_legal);
    let shortest = until(operations, moments.get(first_illegal).copied().unwrap_or(u64::MAX));
    let text =
        format!("no order explains {key:?}; the last result below is the first that no order explains\n");
    text + &table::<M>(&shortest)
}

/// What was known at a given time.
fn until<C: Clone, A: Clone>(operations: &[Operation<C, A>], moment_us: u64) -> Vec<Operation<C, A>> {
    let asked = operations.iter().filter(|operation| operation.asked_us <= moment_us).cloned();
    asked
        .map(|operation| match operation.end {
            End::Answered { at_us, .. } if at_us > moment_us => Operation { end: End::Open, ..operation },
            End::Answered { .. } | End::Open => operation,
        })
        .collect()
}

fn table<M: Model>(operations: &[Operation<M::Call, M::Answer>]) -> String {
    let mut order: Vec<_> = operations.iter().collect();
    order.sort_by_key(|operation| (answered_us(operation), operation.asked_us));
    let mut text = String::from("     asked   answered  client  operation (in milliseconds, by answer)\n");
    for operation in order {
        let answered = match operation.end {
            End::Answered { at_us, .. } => format!("{:.2}", ms(at_us)),
            End::Open => "open".to_owned(),
        };
        let asked = ms(operation.asked_us);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{asked:>10.2} {answered:>10} {:>7}  {}",
            operation.client,
            M::describe(operation)
        );
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "for display")]
fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}
