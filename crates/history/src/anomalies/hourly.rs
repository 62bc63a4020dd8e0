//! Reads the counts by the hour from the files of one or more instances.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use rusqlite::Connection;

use super::WINDOW_HOURS;
use super::series::{Counts, Observed, Series};
use super::sources::ARRIVALS_MIN;
use crate::record::OTHER;
use crate::{Error, History};

/// Sources, routes, and instances of routes that are judged: the busiest ones.
const SOURCES_MAX: usize = 1_000;
const ROUTES_MAX: usize = 100;
const INSTANCES_MAX: usize = 500;
/// An hour is known if it was recorded for at least so many seconds.
const RECORDED_MIN: i64 = 3_300;
/// An hour that lasted longer was lived twice: the clock was set back.
const RECORDED_MAX: i64 = 3_900;
/// Decisions about something that arrived. The others follow from it, or are made by operators.
const ARRIVALS: &str = "('new', 'duplicate', 'granted', 'replayed', 'in-flight', 'in-doubt', 'key-reused', 'caller-changed', 'unavailable')";
const DUPLICATES: &str = "('duplicate', 'replayed', 'in-flight')";
const DOUBTS: &str = "('in-doubt', 'declared-in-doubt')";

impl History {
    /// The counts of the busiest sources in the hours that are judged (since 1970), and in those that they are compared with.
    pub fn hourly(&self, judged: RangeInclusive<u64>) -> Result<Observed, Error> {
        let (first_hour, last_hour) = (judged.start().saturating_sub(WINDOW_HOURS as u64), *judged.end());
        let mut reading = Reading::new(first_hour, last_hour);
        self.each(|_, connection| reading.choose(connection))?;
        reading.keep_busiest();
        self.each(|instance, connection| reading.add(instance, connection))?;
        Ok(reading.finish())
    }
}

type Name = (String, String);
type Hours = Vec<Option<Counts>>;

struct Reading {
    hours: [i64; 2],
    busiest: HashMap<Name, u64>,
    sources: BTreeMap<Name, Hours>,
    routes: BTreeMap<String, Route>,
    instances: BTreeMap<Name, Hours>,
    /// Seconds that each hour was recorded: of all files together, and of one file at most.
    recorded: Vec<(i64, i64)>,
    recorded_by: HashMap<String, Vec<i64>>,
}

/// A route, and the hours in which it had more sources than are counted by themselves.
struct Route {
    hours: Hours,
    has_others: Vec<bool>,
}

impl Reading {
    fn new(first_hour: u64, last_hour: u64) -> Self {
        let hours = [first_hour, last_hour].map(|hour| i64::try_from(hour).unwrap_or(i64::MAX));
        Self {
            hours,
            busiest: HashMap::new(),
            sources: BTreeMap::new(),
            routes: BTreeMap::new(),
            instances: BTreeMap::new(),
            recorded: vec![(0, 0); length(hours)],
            recorded_by: HashMap::new(),
        }
    }

    /// Notes how much arrived from each source. Sources that are too quiet to be judged are left out.
    fn choose(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = format!(
            "SELECT route, source, sum(count) AS arrivals FROM hours WHERE hour BETWEEN ?1 AND ?2 AND result IN {ARRIVALS}
             GROUP BY 1, 2 HAVING arrivals >= {}",
            // It may have been counted by several instances.
            ARRIVALS_MIN / 10,
        );
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(self.hours)?;
        while let Some(row) = rows.next()? {
            let arrivals = u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
            *self.busiest.entry((row.get(0)?, row.get(1)?)).or_default() += arrivals;
        }
        Ok(())
    }

    fn keep_busiest(&mut self) {
        let empty = || vec![Some(Counts::default()); length(self.hours)];
        let mut routes: HashMap<&str, u64> = HashMap::new();
        for ((route, _), arrivals) in &self.busiest {
            *routes.entry(route).or_default() += arrivals;
        }
        let mut routes: Vec<_> = routes.into_iter().collect();
        routes.sort_unstable_by_key(|(route, arrivals)| (std::cmp::Reverse(*arrivals), *route));
        let has_others = vec![false; length(self.hours)];
        let route = |(route, _): (&str, u64)| {
            (route.to_owned(), Route { hours: empty(), has_others: has_others.clone() })
        };
        self.routes = routes.into_iter().take(ROUTES_MAX).map(route).collect();
        let mut sources: Vec<(Name, u64)> = std::mem::take(&mut self.busiest).into_iter().collect();
        sources.sort_unstable_by(|(one, more), (other, less)| less.cmp(more).then_with(|| one.cmp(other)));
        self.sources = sources.into_iter().take(SOURCES_MAX).map(|(name, _)| (name, empty())).collect();
    }

    fn add(&mut self, instance: &str, connection: &Connection) -> rusqlite::Result<()> {
        self.add_recorded(instance, connection)?;
        let sql = format!(
            "SELECT hour, route, source, sum(iif(result IN {ARRIVALS}, count, 0)), sum(iif(result IN {DUPLICATES}, count, 0)),
                    sum(iif(result IN {DOUBTS}, count, 0))
             FROM hours WHERE hour BETWEEN ?1 AND ?2 GROUP BY hour, route, source"
        );
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(self.hours)?;
        while let Some(row) = rows.next()? {
            let at = usize::try_from(row.get::<_, i64>(0)? - self.hours[0]).unwrap_or(usize::MAX);
            let count =
                |column| row.get::<_, i64>(column).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
            let counts = Counts { arrivals: count(3)?, duplicates: count(4)?, doubts: count(5)? };
            let (route, source): (String, String) = (row.get(1)?, row.get(2)?);
            if let Some(route) = self.routes.get_mut(&route) {
                add_at(&mut route.hours, at, counts);
                if let Some(has_others) = route.has_others.get_mut(at).filter(|_| source == OTHER) {
                    *has_others = true;
                }
                self.add_to_instance(&row.get::<_, String>(1)?, instance, at, counts);
            }
            if let Some(hours) = self.sources.get_mut(&(route, source)) {
                add_at(hours, at, counts);
            }
        }
        Ok(())
    }

    fn add_to_instance(&mut self, route: &str, instance: &str, at: usize, counts: Counts) {
        let name = (route.to_owned(), instance.to_owned());
        if self.instances.len() < INSTANCES_MAX || self.instances.contains_key(&name) {
            let hours = length(self.hours);
            add_at(
                self.instances.entry(name).or_insert_with(|| vec![Some(Counts::default()); hours]),
                at,
                counts,
            );
        }
    }

    fn add_recorded(&mut self, instance: &str, connection: &Connection) -> rusqlite::Result<()> {
        let by_instance = self.recorded_by.entry(instance.to_owned());
        let by_instance = by_instance.or_insert_with(|| vec![0; length(self.hours)]);
        let mut statement =
            connection.prepare("SELECT hour, seconds FROM recorded WHERE hour BETWEEN ?1 AND ?2")?;
        let mut rows = statement.query(self.hours)?;
        while let Some(row) = rows.next()? {
            let at = usize::try_from(row.get::<_, i64>(0)? - self.hours[0]).unwrap_or(usize::MAX);
            let seconds: i64 = row.get(1)?;
            if let (Some((all, most)), Some(own)) = (self.recorded.get_mut(at), by_instance.get_mut(at)) {
                (*all, *most) = (*all + seconds, (*most).max(seconds));
                *own += seconds;
            }
        }
        Ok(())
    }

    fn finish(self) -> Observed {
        let Self { hours, sources, routes, instances, recorded, recorded_by, .. } = self;
        let known: Vec<bool> =
            recorded.iter().map(|(all, most)| *all >= RECORDED_MIN && *most <= RECORDED_MAX).collect();
        // In place: these are the largest data of a check.
        let series =
            |route: String, name: String, mut hours: Hours, is_known: &dyn Fn(usize, Counts) -> bool| {
                for (at, counts) in hours.iter_mut().enumerate() {
                    *counts = counts.filter(|counts| is_known(at, *counts));
                }
                Series { route, name, hours }
            };
        let sources = sources.into_iter().map(|((route, name), hours)| {
            let others = routes.get(&route).map(|route| &route.has_others);
            // If a route has too many sources, this one may be among the others.
            let is_known = |at: usize, counts: Counts| {
                known[at] && (counts.arrivals > 0 || others.is_none_or(|others| !others[at]))
            };
            series(route, name, hours, &is_known)
        });
        let sources = sources.collect();
        let instances = instances.into_iter().map(|((route, name), hours)| {
            let own = recorded_by.get(&name);
            let is_known = |at: usize, _: Counts| known[at] && own.is_some_and(|own| own[at] >= RECORDED_MIN);
            series(route, name, hours, &is_known)
        });
        let instances = instances.collect();
        let routes = routes
            .into_iter()
            .map(|(route, Route { hours, .. })| series(route, String::new(), hours, &|at, _| known[at]))
            .collect();
        Observed { first_hour: u64::try_from(hours[0]).unwrap_or(0), sources, routes, instances }
    }
}

fn length([first, last]: [i64; 2]) -> usize {
    usize::try_from(last - first + 1).unwrap_or(0)
}

fn add_at(hours: &mut [Option<Counts>], at: usize, counts: Counts) {
    if let Some(Some(hour)) = hours.get_mut(at) {
        hour.add(counts);
    }
}
