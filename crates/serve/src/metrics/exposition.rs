//! Reads the text that `/metrics` shows.
//!
//! The recorder offers no way to read single values, and a second recorder would double the cost of each increment on the
//! path of every request. So whoever needs values (the console, exporters) renders the text and reads it.

/// A line of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line<'a> {
    /// What a metric means.
    Help(&'a str, &'a str),
    /// What kind of metric the following samples belong to: `counter`, `gauge`, `histogram` or `summary`.
    Type(&'a str, &'a str),
    /// A value.
    Sample(Sample<'a>),
}

/// A value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name, with the suffix of a histogram's part.
    pub name: &'a str,
    labels: &'a str,
    /// The value.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label, with its escapes. Quotes in other values are escaped, so those cannot be mistaken for it.
    pub fn label(&self, name: &str) -> Option<&'a str> {
        self.raw_labels().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// All labels, as they were before they were escaped.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, String)> {
        self.raw_labels().map(|(name, value)| (name, unescaped(value)))
    }

    fn raw_labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (name, quoted) = rest.trim_start_matches(',').split_once("=\"")?;
            let end = closing_quote(quoted)?;
            rest = &quoted[end + 1..];
            Some((name, &quoted[..end]))
        })
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = rest.next() {
        plain.push(match letter {
            '\\' => match rest.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    plain
}

/// The lines of the text.
pub fn lines(page: &str) -> impl Iterator<Item = Line<'_>> {
    page.lines().filter_map(|line| match line.strip_prefix("# ") {
        Some(comment) => {
            let (kind, rest) = comment.split_once(' ')?;
            let (name, text) = rest.split_once(' ')?;
            match kind {
                "HELP" => Some(Line::Help(name, text)),
                "TYPE" => Some(Line::Type(name, text)),
                _ => None,
            }
        }
        None => sample(line).map(Line::Sample),
    })
}

/// The values in the text.
pub fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    match series.split_once('{') {
        Some((name, labels)) => Some(Sample { name, labels: labels.strip_suffix('}')?, value }),
        None => Some(Sample { name: series, labels: "", value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_whatever_their_values_contain() {
        let page = "# HELP a_total Means \"a\".\n# TYPE a_total counter\n\
            a_total{route=\"POST /a,b=\\\"c\\\"}\\\\\",b=\"x\\ny\"} 9\n\nb 0.5\n";
        let lines: Vec<_> = lines(page).collect();
        assert_eq!(lines[..2], [Line::Help("a_total", "Means \"a\"."), Line::Type("a_total", "counter")]);
        let Line::Sample(sample) = lines[2] else { panic!("{lines:?}") };
        let labels: Vec<_> = sample.labels().collect();
        assert_eq!(labels, [("route", "POST /a,b=\"c\"}\\".to_owned()), ("b", "x\ny".to_owned())]);
        assert_eq!((sample.name, sample.label("b"), sample.value), ("a_total", Some("x\\ny"), 9.0));
        assert_eq!(samples(page).map(|sample| sample.name).collect::<Vec<_>>(), ["a_total", "b"]);
        assert_eq!((samples("b 0.5").next().unwrap().labels().count(), samples("b x").next()), (0, None));
    }
}
