-- Completes claims with different keys. Rows that somebody else has locked are left out: an application's transaction may
-- hold one for long, and the others must not wait for it.
--
-- Rows are looked up one by one, so that the plan is the same however large the table has become.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::boolean[], $4::bytea[]) AS asked (index, token, kept, outcome)
), open AS MATERIALIZED (
    SELECT open.ctid AS row
    FROM asked CROSS JOIN LATERAL (
        SELECT c.ctid FROM ichido.claims AS c
        WHERE c.index = asked.index AND c.token = asked.token AND c.state <> 'done'
        FOR UPDATE SKIP LOCKED
    ) AS open
)
UPDATE ichido.claims AS c SET
    version = c.version + 1, state = 'done', completed_at = clock.now, outcome_kept = asked.kept, outcome = asked.outcome,
    over_at = clock.now + c.retention_ms, doubt_at = NULL, doubt_kind = NULL, doubt_reason = NULL
FROM asked CROSS JOIN clock
WHERE c.ctid = ANY (ARRAY(SELECT row FROM open)) AND c.index = asked.index AND c.token = asked.token
    AND c.state <> 'done' AND c.over_at > clock.now
RETURNING c.index
