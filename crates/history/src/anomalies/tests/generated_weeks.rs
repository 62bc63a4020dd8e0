//! Generates the weeks of an installation: rhythm, growth, summer time and chance, and anomalies that are planted into them.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small")]

use crate::anomalies::{Counts, Kind, Observed, Series};

const DAY: usize = 24;
const WEEK: usize = 7 * DAY;
/// A Monday, 00:00.
const FIRST_HOUR: u64 = 490_896;
const ROUTES: [&str; 2] = ["POST /slack/events", "events"];
const INSTANCES: [(&str, f64); 3] = [("web-1", 0.4), ("web-2", 0.35), ("web-3", 0.25)];

/// SplitMix64. The figures in the documentation depend on it.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Between 0 and 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn between(&mut self, from: usize, to: usize) -> usize {
        from + (self.next() % (to - from) as u64) as usize
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((1.0 - self.share()).ln(), self.share());
        (-2.0 * radius).sqrt() * (angle * std::f64::consts::TAU).cos()
    }

    /// A factor around 1.
    fn factor(&mut self, deviation: f64) -> f64 {
        (self.normal() * deviation).exp()
    }

    pub(super) fn poisson(&mut self, mean: f64) -> u32 {
        if mean > 40.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0) as u32;
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.share(), 0);
        while product > limit {
            product *= self.share();
            count += 1;
        }
        count
    }

    fn binomial(&mut self, n: u32, share: f64) -> u32 {
        let mean = f64::from(n) * share;
        if n > 60 && mean > 20.0 && share < 0.9 {
            let deviation = (mean * (1.0 - share)).sqrt();
            return ((mean + deviation * self.normal()).round().max(0.0) as u32).min(n);
        }
        (0..n).filter(|_| self.share() < share).count() as u32
    }
}

/// How the activity of a source changes with the hour.
#[derive(Clone, Copy)]
enum Rhythm {
    /// People at work: days, few at night and at the weekend; an hour earlier in summer.
    Office,
    /// People everywhere: more in the evening and at the weekend.
    Community,
    /// A machine: the same at every hour.
    Machine,
    /// A machine with a large job every night.
    Nightly,
}

struct Profile {
    name: &'static str,
    route: usize,
    rhythm: Rhythm,
    /// Arrivals in a busy hour.
    peak: f64,
    growth_per_week: f64,
    duplicates: f64,
}

const fn profile(
    name: &'static str,
    route: usize,
    rhythm: Rhythm,
    peak: f64,
    growth_per_week: f64,
    duplicates: f64,
) -> Profile {
    Profile { name, route, rhythm, peak, growth_per_week, duplicates }
}

/// From quiet to busy.
const PROFILES: [Profile; 20] = [
    profile("C-quiet", 0, Rhythm::Office, 2.0, 1.0, 0.02),
    profile("C-team", 0, Rhythm::Office, 8.0, 1.0, 0.02),
    profile("C-sales", 0, Rhythm::Office, 20.0, 1.01, 0.01),
    profile("C-support", 0, Rhythm::Office, 60.0, 1.01, 0.03),
    profile("C-build", 0, Rhythm::Machine, 12.0, 1.0, 0.01),
    profile("C-alerts", 0, Rhythm::Machine, 45.0, 1.0, 0.05),
    profile("C-files", 0, Rhythm::Office, 150.0, 1.02, 0.02),
    profile("C-general", 0, Rhythm::Community, 300.0, 1.01, 0.03),
    profile("C-random", 0, Rhythm::Community, 35.0, 0.99, 0.02),
    profile("C-night", 0, Rhythm::Nightly, 200.0, 1.0, 0.01),
    profile("acme/web", 1, Rhythm::Office, 90.0, 1.01, 0.01),
    profile("acme/api", 1, Rhythm::Office, 30.0, 1.02, 0.02),
    profile("acme/docs", 1, Rhythm::Office, 5.0, 1.0, 0.01),
    profile("acme/ci", 1, Rhythm::Machine, 500.0, 1.01, 0.01),
    profile("acme/app", 1, Rhythm::Community, 1_500.0, 1.01, 0.02),
    profile("acme/shop", 1, Rhythm::Community, 120.0, 1.02, 0.04),
    profile("acme/old", 1, Rhythm::Machine, 1.0, 1.0, 0.01),
    profile("acme/import", 1, Rhythm::Nightly, 80.0, 1.0, 0.02),
    profile("acme/batch", 1, Rhythm::Machine, 25.0, 1.0, 0.01),
    profile("acme/beta", 1, Rhythm::Community, 15.0, 1.01, 0.02),
];

impl Profile {
    /// The mean of an hour, without chance.
    fn mean(&self, at: usize, summer: &std::ops::Range<usize>) -> f64 {
        let local = if summer.contains(&(at / WEEK)) { at + 1 } else { at };
        let (hour, day) = (local % DAY, local / DAY % 7);
        let is_weekend = day >= 5;
        const OFFICE: [f64; DAY] = [
            0.02, 0.02, 0.02, 0.02, 0.02, 0.03, 0.06, 0.2, 0.6, 0.9, 1.0, 0.95, 0.6, 0.8, 1.0, 1.0, 0.9, 0.7,
            0.4, 0.2, 0.1, 0.06, 0.04, 0.03,
        ];
        let level = match self.rhythm {
            Rhythm::Office => OFFICE[hour] * if is_weekend { 0.08 } else { 1.0 },
            Rhythm::Community => {
                let evening = ((hour as f64 - 20.0) / DAY as f64 * std::f64::consts::TAU).cos();
                (0.55 + 0.45 * evening) * if is_weekend { 1.0 } else { 0.7 }
            }
            Rhythm::Machine => 1.0,
            Rhythm::Nightly => {
                if at % DAY == 2 {
                    1.0
                } else {
                    0.05
                }
            }
        };
        self.peak * level * self.growth_per_week.powf(at as f64 / WEEK as f64)
    }
}

/// An anomaly that was planted.
#[derive(Clone, Debug)]
pub(super) struct Planted {
    pub(super) kind: Kind,
    pub(super) route: &'static str,
    /// The source or the instance.
    pub(super) name: String,
    /// Hours since 1970.
    pub(super) hours: std::ops::Range<u64>,
}

#[derive(Clone, Copy)]
enum Effect {
    Times(f64),
    Duplicates(f64),
    Doubts(f64),
    InstanceDuplicates(usize, f64),
    InstanceDoubts(usize, f64),
    InstanceShare(usize, f64),
}

struct Plant {
    planted: Planted,
    source: Option<usize>,
    route: usize,
    effect: Effect,
}

/// Weeks of an installation.
pub(super) struct Weeks {
    pub(super) observed: Observed,
    pub(super) planted: Vec<Planted>,
}

/// Generates weeks. One anomaly of each kind is planted into every week from `planted_from` on.
pub(super) fn generate(seed: u64, weeks: usize, planted_from: usize) -> Weeks {
    let chance = &mut Chance(seed);
    let summer_starts = chance.between(4, 20);
    let summer = summer_starts..summer_starts + 26;
    let plants: Vec<Plant> = (planted_from..weeks)
        .flat_map(|week| Kind::ALL.map(|kind| (week, kind)))
        .map(|(week, kind)| plant(chance, kind, week, &summer))
        .collect();
    let observed = observe(chance, weeks * WEEK, &summer, &plants);
    Weeks { observed, planted: plants.into_iter().map(|plant| plant.planted).collect() }
}

fn plant(chance: &mut Chance, kind: Kind, week: usize, summer: &std::ops::Range<usize>) -> Plant {
    let (mean_min, length) = match kind {
        Kind::Volume => (30.0, chance.between(1, 4)),
        Kind::Duplicates => (40.0, chance.between(1, 4)),
        Kind::Silence => (5.0, chance.between(8, 25)),
        Kind::InDoubt => (0.0, 1),
        Kind::Instance => (200.0, chance.between(1, 4)),
    };
    let (source, at) = loop {
        let (source, at) = (chance.between(0, PROFILES.len()), week * WEEK + chance.between(0, WEEK - 25));
        if PROFILES[source].mean(at, summer) >= mean_min && PROFILES[source].mean(at + 1, summer) >= mean_min
        {
            break (source, at);
        }
    };
    let route = PROFILES[source].route;
    let instance = chance.between(0, INSTANCES.len());
    let size = chance.share();
    let effect = match kind {
        Kind::Volume if chance.share() < 0.6 => Effect::Times(3.0 + 3.0 * size),
        Kind::Volume => Effect::Times(0.05 + 0.1 * size),
        Kind::Duplicates => Effect::Duplicates(0.3 + 0.3 * size),
        Kind::Silence => Effect::Times(0.0),
        Kind::InDoubt => Effect::Doubts(12.0 + 40.0 * size),
        Kind::Instance => match chance.between(0, 3) {
            0 => Effect::InstanceDuplicates(instance, 0.3 + 0.3 * size),
            1 => Effect::InstanceDoubts(instance, 0.1 + 0.2 * size),
            _ => Effect::InstanceShare(instance, 0.1 * size),
        },
    };
    let name = match kind {
        Kind::Volume | Kind::Duplicates | Kind::Silence => PROFILES[source].name,
        Kind::InDoubt => "",
        Kind::Instance => INSTANCES[instance].0,
    };
    let hours = FIRST_HOUR + at as u64..FIRST_HOUR + (at + length) as u64;
    let planted = Planted { kind, route: ROUTES[route], name: name.to_owned(), hours };
    let is_of_source = matches!(kind, Kind::Volume | Kind::Duplicates | Kind::Silence);
    Plant { planted, source: is_of_source.then_some(source), route, effect }
}

fn observe(chance: &mut Chance, hours: usize, summer: &std::ops::Range<usize>, plants: &[Plant]) -> Observed {
    let series = |route: &str, name: &str| Series {
        route: route.to_owned(),
        name: name.to_owned(),
        hours: vec![Some(Counts::default()); hours],
    };
    let mut observed = Observed {
        first_hour: FIRST_HOUR,
        sources: PROFILES.iter().map(|one| series(ROUTES[one.route], one.name)).collect(),
        routes: ROUTES.iter().map(|route| series(route, "")).collect(),
        instances: ROUTES
            .iter()
            .flat_map(|route| INSTANCES.iter().map(|(name, _)| series(route, name)))
            .collect(),
    };
    let mut day_factors = [1.0; PROFILES.len()];
    for at in 0..hours {
        let hour = FIRST_HOUR + at as u64;
        let active: Vec<&Plant> = plants.iter().filter(|one| one.planted.hours.contains(&hour)).collect();
        let mut totals = [[Counts::default(); INSTANCES.len()]; ROUTES.len()];
        for (source, profile) in PROFILES.iter().enumerate() {
            if at % DAY == 0 {
                day_factors[source] = chance.factor(0.1);
            }
            let mut mean = profile.mean(at, summer) * day_factors[source] * chance.factor(0.15);
            let mut duplicates = profile.duplicates * chance.factor(0.3);
            for plant in active.iter().filter(|plant| plant.source == Some(source)) {
                if let Effect::Times(times) = plant.effect {
                    mean *= times;
                }
                if let Effect::Duplicates(share) = plant.effect {
                    duplicates = share;
                }
            }
            let firsts = chance.poisson(mean * (1.0 - profile.duplicates));
            let mut sum = Counts::default();
            for (instance, part) in split(chance, firsts, profile.route, &active).into_iter().enumerate() {
                let mut share = duplicates;
                for plant in active.iter().filter(|plant| plant.route == profile.route) {
                    if let Effect::InstanceDuplicates(which, planted) = plant.effect
                        && which == instance
                    {
                        share = planted;
                    }
                }
                let repeated = chance.poisson(f64::from(part) * share / (1.0 - share));
                let counts = Counts { arrivals: part + repeated, duplicates: repeated, doubts: 0 };
                sum.add(counts);
                totals[profile.route][instance].add(counts);
            }
            observed.sources[source].hours[at] = Some(sum);
        }
        for (route, of_route) in totals.iter_mut().enumerate() {
            for (instance, counts) in of_route.iter_mut().enumerate() {
                counts.doubts = chance.poisson(0.1);
                for plant in active.iter().filter(|plant| plant.route == route) {
                    if let Effect::Doubts(mean) = plant.effect {
                        counts.doubts += chance.poisson(mean * INSTANCES[instance].1);
                    }
                    if let Effect::InstanceDoubts(which, share) = plant.effect
                        && which == instance
                    {
                        counts.doubts += chance.binomial(counts.arrivals, share);
                    }
                }
                observed.instances[route * INSTANCES.len() + instance].hours[at] = Some(*counts);
                if let Some(total) = &mut observed.routes[route].hours[at] {
                    total.add(*counts);
                }
            }
        }
    }
    observed
}

/// Which instance got how many.
fn split(chance: &mut Chance, arrivals: u32, route: usize, active: &[&Plant]) -> [u32; INSTANCES.len()] {
    let mut shares = INSTANCES.map(|(_, share)| share);
    for plant in active.iter().filter(|plant| plant.route == route) {
        if let Effect::InstanceShare(instance, part) = plant.effect {
            shares[instance] *= part;
        }
    }
    let (mut left, mut left_share) = (arrivals, shares.iter().sum::<f64>());
    shares.map(|share| {
        let part = if share >= left_share { left } else { chance.binomial(left, share / left_share) };
        (left, left_share) = (left - part, left_share - share);
        part
    })
}
