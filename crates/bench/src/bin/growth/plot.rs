//! Writes a line plot as SVG: a logarithmic x axis, and a y axis that begins at zero.

use std::fmt::Write;
use std::path::Path;

/// The directory of the plots.
const PLOTS: &str = "ICHIDO_BENCH_PLOTS";

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// The margins: left, right, top, bottom.
const MARGINS: [f64; 4] = [56.0, 24.0, 56.0, 48.0];
const COLORS: [&str; 3] = ["#0b62a8", "#c2410c", "#15803d"];
const STEPS: u32 = 4;

/// A plot without its data.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

/// A name, and points.
pub(crate) type Line<'a> = (&'a str, Vec<(f64, f64)>);

impl Plot<'_> {
    /// Writes `NAME.svg`. Does nothing without data, or if no directory is given.
    pub(crate) fn write(&self, name: &str, lines: &[Line<'_>]) {
        let Some(directory) = std::env::var_os(PLOTS) else { return };
        if lines.iter().all(|(_, points)| points.is_empty()) {
            return;
        }
        std::fs::create_dir_all(&directory).unwrap();
        let path = Path::new(&directory).join(format!("{name}.svg"));
        std::fs::write(&path, self.draw(lines)).unwrap();
        println!("wrote {}", path.display());
    }

    fn draw(&self, lines: &[Line<'_>]) -> String {
        let all = || lines.iter().flat_map(|(_, points)| points);
        let (first, last) =
            all().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
        let top = round_up(all().map(|(_, y)| *y).fold(0.0, f64::max));
        let [left, right, above, below] = MARGINS;
        let x_of = |x: f64| left + (x / first).ln() / (last / first).ln() * (WIDTH - left - right);
        let y_of = |y: f64| HEIGHT - below - y / top * (HEIGHT - above - below);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"#333\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{left}\" y=\"20\" font-size=\"15\">{}</text>\n<text x=\"{left}\" y=\"40\">{}</text>\n",
            self.title, self.y
        );
        for step in 0..=STEPS {
            let value = top * f64::from(step) / f64::from(STEPS);
            let (y, end) = (y_of(value), WIDTH - right);
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {y:.1}H{end}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        for (x, _) in &lines[0].1 {
            let (at, y) = (x_of(*x), HEIGHT - below + 18.0);
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                thousands(*x)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(left, WIDTH - right),
            HEIGHT - 8.0,
            self.x
        );
        for (index, ((name, points), color)) in lines.iter().zip(COLORS).enumerate() {
            let path: Vec<_> =
                points.iter().map(|(x, y)| format!("{:.1} {:.1}", x_of(*x), y_of(*y))).collect();
            let _ = writeln!(
                svg,
                "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
                path.join("L")
            );
            for (x, y) in points {
                let (x, at) = (x_of(*x), y_of(*y));
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{at:.1}\" r=\"3\" fill=\"{color}\"/>\
                     <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{color}\">{y:.0}</text>",
                    at - 8.0
                );
            }
            let x = WIDTH - right - 110.0 * (index + 1) as f64;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{color}\"/><text x=\"{}\" y=\"40\">{name}</text>",
                x + 18.0
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The next of 4, 8, 20, 40, 80, 200, …: all of them divide into four steps of round numbers.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    [2.0, 4.0, 8.0, 20.0].into_iter().map(|factor| factor * power).find(|top| *top >= value).unwrap_or(value)
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
