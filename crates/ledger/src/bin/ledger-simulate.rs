//! Runs many seeds of the simulation.
fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().unwrap());
    let (from, count) = (args.next().unwrap(), args.next().unwrap());
    std::panic::set_hook(Box::new(|_| {}));
    let start = std::time::Instant::now();
    let mut total = ichido_ledger::simulation::Report::default();
    let mut failed = 0;
    let options = ichido_ledger::simulation::RunOptions::default();
    for seed in from..from + count {
        match ichido_ledger::simulation::run(seed, &options) {
            Ok(report) => total.add(&report),
            Err(failure) => {
                failed += 1;
                if failed <= 12 {
                    println!("{}", failure.to_string().chars().take(900).collect::<String>());
                }
            }
        }
    }
    println!("{total:?}\nfailed {failed} of {count}, {} crashes, {:?}", total.crashes(), start.elapsed());
}
