//! How long a sum is summed: a day, an ISO week, a month.

use jiff::ToSpan;
use jiff::civil::Date;

use crate::words::words;

/// The stretch of time that one record tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    /// A day.
    #[default]
    Daily,
    /// An ISO week: Monday to Sunday.
    Weekly,
    /// A calendar month.
    Monthly,
}

words!(Period, "a period", { Daily = "daily", Weekly = "weekly", Monthly = "monthly" });

impl Period {
    /// The first day of the period in which a day lies: the `usage_date` of its record.
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

    /// The last day of the period in which a day lies.
    pub fn end(self, day: Date) -> Date {
        match self {
            Self::Daily => day,
            Self::Weekly => self.start(day).checked_add(6.days()).unwrap_or(Date::MAX),
            Self::Monthly => day.last_of_month(),
        }
    }

    /// What people call the period in which a day lies: `2024-12-30`, `2025-W01`, `2024-12`.
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

    /// `aggregation_method` of a record.
    pub fn method(self) -> &'static str {
        match self {
            Self::Daily => "daily_sum",
            Self::Weekly => "weekly_sum",
            Self::Monthly => "monthly_sum",
        }
    }
}
