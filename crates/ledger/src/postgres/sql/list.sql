WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
)
SELECT clock.now, c.index, c.tenant, c.route, c.key, c.fingerprint, c.nonce, c.token, c.attempt, c.holder,
    c.lease_ms, c.retention_ms, c.metadata, c.renewals, c.state, c.doubt_kind, c.doubt_reason, c.outcome_kept,
    NULL::bytea AS outcome, octet_length(c.outcome)::bigint AS outcome_bytes,
    c.claimed_at, c.renewed_at, c.doubt_at, c.completed_at, c.caller, c.version
FROM ichido.claims AS c CROSS JOIN clock
WHERE c.over_at > clock.now
    AND c.index > $1::bytea
    AND ($2::bytea IS NULL OR c.key >= $2::bytea AND c.key < $3::bytea)
