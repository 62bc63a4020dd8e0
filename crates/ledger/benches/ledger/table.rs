//! The table of results.

/// Figures, one per line.
#[derive(Debug, Default)]
pub struct Table(Vec<[String; 4]>);

impl Table {
    /// A figure without a target.
    pub fn note(&mut self, what: impl Into<String>, figure: impl Into<String>) {
        self.add(what.into(), figure.into(), String::new(), String::new());
    }

    /// A figure that should be at least `target`.
    pub fn at_least(&mut self, what: impl Into<String>, figure: f64, unit: &str, target: f64) {
        let verdict = if figure >= target { "pass" } else { "MISS" };
        self.add(
            what.into(),
            number(figure, unit),
            format!("≥ {}", number(target, unit)),
            verdict.to_owned(),
        );
    }

    /// A figure that should be at most `target`.
    pub fn at_most(&mut self, what: impl Into<String>, figure: f64, unit: &str, target: f64) {
        let verdict = if figure <= target { "pass" } else { "MISS" };
        self.add(
            what.into(),
            number(figure, unit),
            format!("≤ {}", number(target, unit)),
            verdict.to_owned(),
        );
    }

    fn add(&mut self, what: String, figure: String, target: String, verdict: String) {
        println!("  {what}: {figure} {target} {verdict}");
        self.0.push([what, figure, target, verdict]);
    }

    /// Prints all figures, and whether a target was missed.
    pub fn print(&self) {
        println!("\n{:<68} {:>16} {:>14}  verdict", "figure", "measured", "target");
        for [what, figure, target, verdict] in &self.0 {
            println!("{what:<68} {figure:>16} {target:>14}  {verdict}");
        }
        let missed = self.0.iter().filter(|row| row[3] == "MISS").count();
        println!(
            "\n{}",
            if missed == 0 {
                "every target was met".to_owned()
            } else {
                format!("{missed} targets were missed")
            }
        );
    }
}

fn number(value: f64, unit: &str) -> String {
    let text = if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    format!("{text}{unit}")
}
