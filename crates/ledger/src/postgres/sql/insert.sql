-- Inserts a record if the key is absent, and otherwise reads the existing one. If $24, times are relative to the server's
-- clock. No insert is tried on an existing row: it would wait for a transaction that is completing the claim.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), origin AS MATERIALIZED (
    SELECT CASE WHEN $24::boolean THEN now ELSE 0 END AS at FROM clock
), fresh AS (
    INSERT INTO ichido.claims (
        index, tenant, route, key, fingerprint, nonce, token, attempt, holder, lease_ms, retention_ms, metadata,
        renewals, state, doubt_kind, doubt_reason, outcome_kept, outcome,
        claimed_at, renewed_at, doubt_at, completed_at, over_at, caller, version
    )
    SELECT
        $1::bytea, $2::bytea, $3::bytea, $4::bytea, $5::bytea, $6::bytea, $7::bytea, $8::bigint, $9::text, $10::bigint,
        $11::bigint, $12::json, $13::bigint, $14::text, $15::text, $16::bytea, $17::boolean, $18::bytea,
        at + $19::bigint, at + $20::bigint, at + $21::bigint, at + $22::bigint, at + $23::bigint, $25::bytea, 1
    FROM origin
    WHERE NOT EXISTS (SELECT FROM ichido.claims WHERE index = $1::bytea)
    ON CONFLICT (index) DO NOTHING
    RETURNING index
)
SELECT clock.now, EXISTS (SELECT FROM fresh) AS written, found.index, found.tenant, found.route, found.key, found.fingerprint, found.nonce,
    found.token, found.attempt, found.holder, found.lease_ms, found.retention_ms, found.metadata, found.renewals,
    found.state, found.doubt_kind, found.doubt_reason, found.outcome_kept, found.outcome, found.claimed_at,
    found.renewed_at, found.doubt_at, found.completed_at, found.caller, found.version
FROM clock LEFT JOIN ichido.claims AS found ON found.index = $1::bytea
