WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), applied AS (
    DELETE FROM ichido.claims AS c USING clock
    WHERE c.index = $1::bytea AND c.token = $2::bytea AND c.completed_at IS NULL AND c.over_at > clock.now
    RETURNING c.index
)
SELECT clock.now, EXISTS (SELECT FROM applied) AS written, found.index, found.tenant, found.route, found.key, found.fingerprint, found.nonce,
    found.token, found.attempt, found.holder, found.lease_ms, found.retention_ms, found.metadata, found.renewals,
    found.state, found.doubt_kind, found.doubt_reason, found.outcome_kept, found.outcome, found.claimed_at,
    found.renewed_at, found.doubt_at, found.completed_at, found.caller, found.version
FROM clock LEFT JOIN ichido.claims AS found ON found.index = $1::bytea
