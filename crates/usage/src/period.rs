//! The period that a record covers: a day, an ISO week or a month.

use jiff::ToSpan;
use jiff::civil::Date;

use crate::named_enum::named_enum;

/// The period that a record covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    /// A day.
    #[default]
    Daily,
    /// An ISO week, from Monday to Sunday.
    Weekly,
    /// A calendar month.
    Monthly,
}

named_enum!(Period, "a period", { Daily = "daily", Weekly = "weekly", Monthly = "monthly" });

impl Period {
    /// Returns the first day of the period that contains a day: the `usage_date` of its record.
    pub fn start(self, day: Date) -> Date {
        match self {
            Self::Daily => day,
            // The first days of the calendar have no Monday before them.
            Self::Weekly => {
                day.checked_sub(i64::from(day.weekday().to_monday_zero_offset()).days()).unwrap_or(Date::MIN)
            }
            Self::Monthly => day.first_of_month(),
        }
    }

    /// Returns the last day of the period that contains a day.
    pub fn end(self, day: Date) -> Date {
        match self {
            Self::Daily => day,
            Self::Weekly => self.start(day).checked_add(6.days()).unwrap_or(Date::MAX),
            Self::Monthly => day.last_of_month(),
        }
    }

    /// Returns the common name of the period that contains a day: `2024-12-30`, `2025-W01`, `2024-12`.
    pub fn label(self, day: Date) -> String {
        match self {
            Self::Daily => day.to_string(),
            Self::Weekly => {
                let week = day.iso_week_date();
                format!("{:04}-W{:02}", week.year(), week.week())
            }
            Self::Monthly => day.strftime("%Y-%m").to_string(),
        }
    }

    /// Returns the `aggregation_method` of records.
    pub fn method(self) -> &'static str {
        match self {
            Self::Daily => "daily_sum",
            Self::Weekly => "weekly_sum",
            Self::Monthly => "monthly_sum",
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    /// 2024-12-30 is in the first week of 2025, not of 2024.
    #[test]
    fn week_belongs_to_the_year_of_its_thursday() {
        for (day, label, monday) in [
            (date(2024, 12, 30), "2025-W01", date(2024, 12, 30)),
            (date(2025, 1, 1), "2025-W01", date(2024, 12, 30)),
            (date(2021, 1, 3), "2020-W53", date(2020, 12, 28)),
            (date(2027, 1, 3), "2026-W53", date(2026, 12, 28)),
            (date(2024, 2, 29), "2024-W09", date(2024, 2, 26)),
        ] {
            assert_eq!(
                (Period::Weekly.label(day).as_str(), Period::Weekly.start(day)),
                (label, monday),
                "{day}"
            );
        }
    }

    #[test]
    fn months_have_their_own_last_day() {
        assert_eq!(Period::Monthly.end(date(2024, 2, 3)), date(2024, 2, 29));
        assert_eq!(Period::Monthly.start(date(2024, 12, 31)), date(2024, 12, 1));
        assert_eq!(Period::Monthly.label(date(2024, 12, 31)), "2024-12");
        assert_eq!(Period::Daily.label(date(2024, 12, 31)), "2024-12-31");
    }

    /// Days since 1970-01-01, computed without a library.
    fn days(year: i64, month: i64, day: i64) -> i64 {
        let shifted = if month > 2 { year } else { year - 1 };
        let era = shifted.div_euclid(400);
        let of_era = shifted - era * 400;
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }

    proptest! {
        /// A week belongs to the year of its Thursday and is counted from 1 January of that year.
        #[test]
        fn weeks_agree_with_independent_arithmetic(year in 1970_i16..2200, month in 1_i8..13, day in 1_i8..29) {
            let date = date(year, month, day);
            let number = days(year.into(), month.into(), day.into());
            // 1970-01-01 was a Thursday.
            let monday = number - (number + 3).rem_euclid(7);
            let thursday = monday + 3;
            let thursdays_year = [year - 1, year, year + 1].into_iter().rev().map(i64::from)
                .find(|year| days(*year, 1, 1) <= thursday).unwrap();
            let week = (thursday - days(thursdays_year, 1, 1)) / 7 + 1;
            prop_assert_eq!(Period::Weekly.label(date), format!("{thursdays_year:04}-W{week:02}"));
            let start = Period::Weekly.start(date);
            prop_assert_eq!(days(start.year().into(), start.month().into(), start.day().into()), monday);
            let end = Period::Weekly.end(date);
            prop_assert_eq!(days(end.year().into(), end.month().into(), end.day().into()), monday + 6);
        }
    }
}
