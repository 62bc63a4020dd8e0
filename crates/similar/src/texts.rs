//! The recent texts, and their index.
//!
//! The texts are in a queue, oldest first: they leave it when the window is over, or when there are too many of them or they
//! take too much memory. For each band there is a map from its hash to the newest text with it, and each text knows the one before
//! it. So a bucket is a chain through the queue; a chain ends where the queue does, and nothing has to be removed from it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use ichido_core::{Clock, Entropy};

use crate::bands::Banding;
use crate::sketch::{Sketch, mix};

/// How far the chain of a band is followed. Many similar messages, such as alerts of one kind, share their bands.
const CHAIN_MAX: usize = 16;
/// How many candidates are compared: those that share the most bands.
const COMPARED_MAX: usize = 32;
/// The memory of one band of one text: its hash, the text before it, and its entry in a map.
const BAND_BYTES: usize = 8 + 20;

/// What counts as similar, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// From this similarity on, from 0.5 to 1.
    pub threshold: f64,
    /// How long a text is remembered.
    pub window: Duration,
    /// How many texts are remembered. Beyond it, the oldest ones are forgotten.
    pub texts_max: usize,
    /// How much memory they may take. Beyond it, the oldest ones are forgotten.
    pub bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threshold: 0.9,
            window: Duration::from_secs(600),
            texts_max: 100_000,
            bytes_max: 128 * 1024 * 1024,
        }
    }
}

/// Whether a text is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// In any case.
    Always,
    /// Unless it is similar to another one.
    IfDifferent,
}

/// The most similar text.
#[derive(Clone, Debug, PartialEq)]
pub struct SimilarText {
    /// Its event.
    pub event: String,
    /// The similarity.
    pub score: f64,
    /// Whether its event was handled; otherwise it is being handled.
    pub is_confirmed: bool,
}

/// The result of a check.
#[derive(Debug)]
pub struct Checked {
    /// The most similar text of another event.
    pub similar: Option<SimilarText>,
    /// The text itself, if it was remembered.
    pub remembered: Option<Remembered>,
}

/// Recent texts. Each process has its own.
#[derive(Debug)]
pub struct SimilarTexts {
    options: Options,
    banding: Banding,
    clock: Arc<dyn Clock>,
    seed: u64,
    recent: Mutex<Recent>,
}

impl SimilarTexts {
    /// Creates an empty index. The seed keeps others from choosing texts that collide.
    pub fn new(options: Options, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let banding = Banding::for_threshold(options.threshold);
        let recent = Mutex::new(Recent {
            texts: VecDeque::new(),
            first: 0,
            bytes: 0,
            newest: vec![HashMap::default(); banding.count()],
        });
        Self { options, banding, clock, seed, recent }
    }

    /// Creates an empty index with a random seed.
    pub fn with_entropy(options: Options, clock: Arc<dyn Clock>, entropy: &dyn Entropy) -> Self {
        let seed = entropy.draw().iter().fold(0, |seed, byte| mix(seed ^ u64::from(*byte)));
        Self::new(options, clock, seed)
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Finds the most similar text of another event, and remembers this one, in one step. Only texts in the same space are
    /// compared. A text that is remembered is forgotten again unless it is confirmed.
    pub fn check(self: &Arc<Self>, space: &str, event: &str, text: &str, keep: Keep) -> Checked {
        let seed = space.bytes().fold(self.seed, |seed, byte| mix(seed ^ u64::from(byte)));
        let Some(sketch) = Sketch::of(text, seed) else {
            return Checked { similar: None, remembered: None };
        };
        let bands = self.banding.of(sketch.features());
        let now = self.clock.steady();
        let mut recent = self.lock();
        recent.expire(now.saturating_sub(self.options.window));
        let similar = recent.most_similar(event, &sketch, &bands, self.options.threshold);
        let remembered = (keep == Keep::Always || similar.is_none()).then(|| {
            let number = recent.push(now, event, sketch, bands);
            recent.shrink(&self.options);
            Remembered { texts: self.clone(), number, is_confirmed: AtomicBool::new(false) }
        });
        Checked { similar, remembered }
    }

    /// How many texts are remembered, and the bytes that they take.
    pub fn size(&self) -> (usize, usize) {
        let recent = self.lock();
        (recent.texts.len(), recent.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text that was remembered. Dropping it forgets the text unless it was confirmed.
#[derive(Debug)]
pub struct Remembered {
    texts: Arc<SimilarTexts>,
    number: u32,
    is_confirmed: AtomicBool,
}

impl Remembered {
    /// The event of the text was handled.
    pub fn confirm(&self) {
        self.is_confirmed.store(true, Ordering::Relaxed);
        if let Some(text) = self.texts.lock().get_mut(self.number) {
            text.state = State::Confirmed;
        }
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        if !self.is_confirmed.load(Ordering::Relaxed)
            && let Some(text) = self.texts.lock().get_mut(self.number)
        {
            text.state = State::Forgotten;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Confirmed,
    /// Never reported. It leaves the queue like the others, because chains pass through it.
    Forgotten,
}

#[derive(Debug)]
struct Text {
    at: Duration,
    event: Box<str>,
    sketch: Sketch,
    bands: Box<[u32]>,
    /// For each band, the text before this one.
    before: Box<[u32]>,
    state: State,
}

impl Text {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.event.len() + self.sketch.bytes() + self.bands.len() * BAND_BYTES
    }
}

#[derive(Debug)]
struct Recent {
    texts: VecDeque<Text>,
    /// The number of the oldest text. Numbers wrap around.
    first: u32,
    bytes: usize,
    /// For each band, the newest text with a hash.
    newest: Vec<HashMap<u32, u32, FixedState>>,
}

impl Recent {
    fn position(&self, number: u32) -> Option<usize> {
        let at = number.wrapping_sub(self.first) as usize;
        (at < self.texts.len()).then_some(at)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Text> {
        let at = self.position(number)?;
        self.texts.get_mut(at)
    }

    fn expire(&mut self, before: Duration) {
        while self.texts.front().is_some_and(|text| text.at < before) {
            self.pop();
        }
    }

    fn shrink(&mut self, options: &Options) {
        while self.texts.len() > options.texts_max || self.bytes > options.bytes_max {
            self.pop();
        }
    }

    fn pop(&mut self) {
        let Some(text) = self.texts.pop_front() else { return };
        self.bytes -= text.bytes();
        for (newest, band) in self.newest.iter_mut().zip(&text.bands) {
            if newest.get(band) == Some(&self.first) {
                newest.remove(band);
            }
        }
        self.first = self.first.wrapping_add(1);
    }

    fn push(&mut self, at: Duration, event: &str, sketch: Sketch, bands: Box<[u32]>) -> u32 {
        let length = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let number = self.first.wrapping_add(length);
        // Without a text before it, the chain ends at a number that is not in the queue.
        let nobody = self.first.wrapping_sub(1);
        let newest = self.newest.iter_mut().zip(&bands);
        let before = newest.map(|(newest, band)| newest.insert(*band, number).unwrap_or(nobody)).collect();
        let text = Text { at, event: event.into(), sketch, bands, before, state: State::Running };
        self.bytes += text.bytes();
        self.texts.push_back(text);
        number
    }

    fn most_similar(
        &self,
        event: &str,
        sketch: &Sketch,
        bands: &[u32],
        threshold: f64,
    ) -> Option<SimilarText> {
        let candidates = self.candidates(bands);
        let others = candidates.iter().filter_map(|at| self.texts.get(*at));
        let alive = others.filter(|text| text.state != State::Forgotten && &*text.event != event);
        let scored = alive.map(|text| (text.sketch.similarity(sketch), text));
        let best =
            scored.filter(|(score, _)| *score >= threshold).max_by(|one, other| one.0.total_cmp(&other.0));
        best.map(|(score, text)| SimilarText {
            event: text.event.to_string(),
            score,
            is_confirmed: text.state == State::Confirmed,
        })
    }

    /// The positions of the texts that share the most bands, at most [`COMPARED_MAX`].
    fn candidates(&self, bands: &[u32]) -> Vec<usize> {
        let mut found = Vec::with_capacity(bands.len() * CHAIN_MAX);
        for (band, (newest, hash)) in self.newest.iter().zip(bands).enumerate() {
            let mut next = newest.get(hash).copied();
            for _ in 0..CHAIN_MAX {
                let Some(at) = next.and_then(|number| self.position(number)) else { break };
                found.push(at);
                next = Some(self.texts[at].before[band]);
            }
        }
        found.sort_unstable();
        let mut counted: Vec<(usize, usize)> =
            found.chunk_by(|one, other| one == other).map(|same| (same.len(), same[0])).collect();
        // Those that share the most bands first, and the newest of them.
        counted.sort_unstable_by(|one, other| other.cmp(one));
        counted.into_iter().take(COMPARED_MAX).map(|(_, at)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use ichido_core::{ManualClock, Timestamp};

    use super::*;

    const TEXT: &str =
        "The nightly backup of the billing database has failed, please check the storage quota";

    fn texts(options: Options) -> (Arc<SimilarTexts>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp(1)));
        (Arc::new(SimilarTexts::new(options, clock.clone(), 7)), clock)
    }

    fn remember(texts: &Arc<SimilarTexts>, event: &str, text: &str) -> Option<SimilarText> {
        let checked = texts.check("", event, text, Keep::Always);
        if let Some(remembered) = checked.remembered {
            remembered.confirm();
        }
        checked.similar
    }

    #[test]
    fn a_near_duplicate_is_found_with_its_score_until_the_window_is_over() {
        let (texts, clock) = texts(Options::default());
        assert_eq!(remember(&texts, "A", TEXT), None);
        assert_eq!(remember(&texts, "A", TEXT), None, "a retry of the event itself");
        clock.advance(600_000);
        let similar = remember(&texts, "B", &format!("{TEXT}!")).unwrap();
        assert_eq!((similar.event.as_str(), similar.is_confirmed), ("A", true));
        assert!((0.95..1.0).contains(&similar.score), "{}", similar.score);
        clock.advance(600_001);
        assert_eq!(remember(&texts, "C", TEXT), None);
        assert_eq!(texts.size().0, 1);
    }

    #[test]
    fn what_was_not_handled_is_forgotten() {
        let (texts, _) = texts(Options::default());
        let running = texts.check("", "A", TEXT, Keep::IfDifferent).remembered.unwrap();
        let second = texts.check("", "B", TEXT, Keep::IfDifferent);
        assert!(!second.similar.unwrap().is_confirmed && second.remembered.is_none());
        drop(running);
        assert_eq!(remember(&texts, "C", TEXT), None);
    }

    #[test]
    fn spaces_are_separate() {
        let (texts, _) = texts(Options::default());
        texts.check("a", "A", TEXT, Keep::Always).remembered.unwrap().confirm();
        assert_eq!(texts.check("b", "B", TEXT, Keep::Always).similar, None);
        assert!(texts.check("a", "C", TEXT, Keep::Always).similar.is_some());
    }

    #[test]
    fn the_oldest_texts_are_forgotten_beyond_the_limits() {
        let (texts, _) = texts(Options { texts_max: 3, ..Options::default() });
        let text = |number: u64| format!("{} {} {}", mix(number), mix(number + 1_000), mix(number + 2_000));
        for number in 0..5 {
            remember(&texts, &number.to_string(), &text(number));
        }
        assert_eq!(texts.size().0, 3);
        assert_eq!(remember(&texts, "x", &text(1)), None);
        assert_eq!(remember(&texts, "y", &text(4)).unwrap().event, "4");
        let (small, _) = self::texts(Options { bytes_max: 4_000, ..Options::default() });
        for number in 0..100 {
            remember(&small, &number.to_string(), &text(number));
            assert!(small.size().1 <= 4_000);
        }
        assert!((1..10).contains(&small.size().0));
        assert!(small.lock().newest.iter().all(|newest| newest.len() <= 10), "the maps shrink too");
    }

    /// A thousand alerts of one kind share their bands. The identical one is found nevertheless.
    #[test]
    fn an_identical_text_is_found_among_many_similar_ones() {
        let (texts, _) = texts(Options { threshold: 0.7, ..Options::default() });
        let alert = |number: usize| format!("{TEXT} on host-{number:04} in rack {number}");
        for number in 0..1_000 {
            remember(&texts, &number.to_string(), &alert(number));
        }
        let similar = remember(&texts, "again", &alert(3)).unwrap();
        assert_eq!((similar.event.as_str(), similar.score), ("3", 1.0));
    }
}
