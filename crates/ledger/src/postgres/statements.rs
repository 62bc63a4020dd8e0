//! The statements in `sql/`, for one schema.
//!
//! Each is one round trip and one atomic step. Statements that write compare the token, or token and version of the
//! record that was read, never a snapshot. Statements that also read do so in the statement's snapshot. A
//! concurrent change then shows as "not written, and nothing that explains it", and the call must be retried.

/// The statements for a schema.
pub(super) struct Statements {
    pub(super) claim: String,
    pub(super) insert: String,
    pub(super) replace: String,
    pub(super) remove: String,
    pub(super) read: String,
    pub(super) renew: String,
    pub(super) complete: String,
    pub(super) complete_all: String,
    pub(super) doubt: String,
    pub(super) release: String,
    pub(super) mark: String,
    pub(super) read_mark: String,
    pub(super) list_marks: String,
    pub(super) forget_mark: String,
    pub(super) erase_mark: String,
    pub(super) list: String,
    pub(super) stats: String,
    pub(super) sweep_claims: String,
    pub(super) sweep_marks: String,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Self {
        // The schema's name needs no escaping: see `ichido_postgres::Address`.
        let of = |sql: &str| sql.replace("ichido.", &format!("\"{schema}\"."));
        Self {
            claim: of(include_str!("sql/claim.sql")),
            insert: of(include_str!("sql/insert.sql")),
            replace: of(include_str!("sql/replace.sql")),
            remove: of(include_str!("sql/remove.sql")),
            read: of(include_str!("sql/read.sql")),
            renew: of(include_str!("sql/renew.sql")),
            complete: of(include_str!("sql/complete.sql")),
            complete_all: of(include_str!("sql/complete_all.sql")),
            doubt: of(include_str!("sql/doubt.sql")),
            release: of(include_str!("sql/release.sql")),
            mark: of(include_str!("sql/mark.sql")),
            read_mark: of(include_str!("sql/read_mark.sql")),
            list_marks: of(include_str!("sql/list_marks.sql")),
            forget_mark: of(include_str!("sql/forget_mark.sql")),
            erase_mark: of(include_str!("sql/erase_mark.sql")),
            list: of(include_str!("sql/list.sql")),
            stats: of(include_str!("sql/stats.sql")),
            sweep_claims: of(include_str!("sql/sweep_claims.sql")),
            sweep_marks: of(include_str!("sql/sweep_marks.sql")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::types::{ToSql, Type};

    use super::*;

    /// Behind a pooler, the types of parameters are taken from their casts, so each parameter needs one.
    #[test]
    fn every_parameter_has_a_cast() {
        let Statements {
            claim,
            insert,
            replace,
            remove,
            read,
            renew,
            complete,
            complete_all,
            doubt,
            release,
            mark,
            read_mark,
            list_marks,
            forget_mark,
            erase_mark,
            list,
            stats,
            sweep_claims,
            sweep_marks,
        } = Statements::of("s");
        let all = [
            claim,
            insert,
            replace,
            remove,
            read,
            renew,
            complete,
            complete_all,
            doubt,
            release,
            mark,
            read_mark,
            list_marks,
            forget_mark,
            erase_mark,
            list,
            stats,
            sweep_claims,
            sweep_marks,
        ];
        for sql in all {
            let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
            let highest: usize = sql.split('$').skip(1).filter_map(number).max().unwrap_or(0);
            let values: Vec<&(dyn ToSql + Sync)> = vec![&0_i64; highest];
            let types = ichido_postgres::typed_params(&sql, &values);
            let untyped = types.iter().position(|(_, of)| *of == Type::UNKNOWN);
            assert_eq!(untyped, None, "the parameter after this many has no cast in {sql}");
        }
    }
}
