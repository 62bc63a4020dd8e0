-- Completes claims with different keys. Rows that somebody else has locked are left out: an application's transaction may
-- hold one for long, and the others must not wait for it.
--
-- Rows are looked up one by one and replaced through the unique index, so that the plan is the same however large the table
-- has become: an UPDATE that was planned for an empty table would read all of it. For the same reason a claim that is not
-- done is told by completed_at, here and in other statements about one claim. By its state, the planner would read the index
-- of open claims, which is small, but full of claims that were completed since the last vacuum.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::boolean[], $4::bytea[]) AS asked (index, token, kept, result)
), open AS MATERIALIZED (
    SELECT found.*, asked.kept, asked.result
    FROM asked CROSS JOIN LATERAL (
        SELECT c.* FROM ichido.claims AS c
        WHERE c.index = asked.index AND c.token = asked.token AND c.completed_at IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS found
)
INSERT INTO ichido.claims AS c (
    index, tenant, route, key, fingerprint, nonce, token, attempt, holder, lease_ms, retention_ms, metadata, renewals,
    state, claimed_at, renewed_at, completed_at, outcome_kept, outcome, over_at, caller, version
)
SELECT
    index, tenant, route, key, fingerprint, nonce, token, attempt, holder, lease_ms, retention_ms, metadata, renewals,
    'done', claimed_at, renewed_at, now, kept, result, now + retention_ms, caller, version + 1
FROM open CROSS JOIN clock
WHERE over_at > now
ON CONFLICT (index) DO UPDATE SET
    version = excluded.version, state = excluded.state, completed_at = excluded.completed_at,
    outcome_kept = excluded.outcome_kept, outcome = excluded.outcome, over_at = excluded.over_at,
    doubt_at = NULL, doubt_kind = NULL, doubt_reason = NULL
RETURNING c.index
