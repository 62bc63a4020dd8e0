-- Grants the claims whose keys are absent, and reads the others. Keys differ. No insert is tried on an existing row: it
-- would wait for a transaction that is completing the claim. Rows are inserted in the order of their keys, so that two
-- batches never deadlock. A row that another batch inserted after our snapshot is neither written nor read.
--
-- Existing rows are looked up one by one, so that the plan is the same however large the table has become.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::bigint[], $9::text[],
        $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[], $15::bytea[]
    ) WITH ORDINALITY AS asked (
        index, tenant, route, key, fingerprint, nonce, token, attempt, holder, lease_ms, retention_ms, metadata,
        doubt_after, over_after, caller, place
    )
), known AS MATERIALIZED (
    SELECT asked.place, found.*
    FROM asked CROSS JOIN LATERAL (SELECT * FROM ichido.claims AS c WHERE c.index = asked.index LIMIT 1) AS found
), fresh AS (
    INSERT INTO ichido.claims (
        index, tenant, route, key, fingerprint, nonce, token, attempt, holder, lease_ms, retention_ms, metadata, renewals,
        state, claimed_at, renewed_at, doubt_at, over_at, caller, version
    )
    SELECT
        index, tenant, route, key, fingerprint, nonce, token, attempt, holder, lease_ms, retention_ms, metadata::json, 0,
        'running', now, now, now + doubt_after, now + over_after, caller, 1
    FROM asked CROSS JOIN clock
    WHERE place NOT IN (SELECT place FROM known)
    ORDER BY index
    ON CONFLICT (index) DO NOTHING
    RETURNING index
)
SELECT asked.place, clock.now, fresh.index IS NOT NULL AS written, known.index, known.tenant, known.route, known.key,
    known.fingerprint, known.nonce, known.token, known.attempt, known.holder, known.lease_ms, known.retention_ms,
    known.metadata, known.renewals, known.state, known.doubt_kind, known.doubt_reason, known.outcome_kept, known.outcome,
    known.claimed_at, known.renewed_at, known.doubt_at, known.completed_at, known.caller, known.version
FROM asked CROSS JOIN clock
LEFT JOIN fresh ON fresh.index = asked.index
LEFT JOIN known ON known.place = asked.place
