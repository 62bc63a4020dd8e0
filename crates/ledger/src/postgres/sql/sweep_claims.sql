WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), over AS (
    SELECT index FROM ichido.claims WHERE over_at <= (SELECT now FROM clock)
    ORDER BY over_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM ichido.claims AS c USING over, clock WHERE c.index = over.index
RETURNING clock.now, c.index, c.tenant, c.route, c.key, c.fingerprint, c.nonce, c.token, c.attempt, c.holder,
    c.lease_ms, c.retention_ms, c.metadata, c.renewals, c.state, c.doubt_kind, c.doubt_reason, c.outcome_kept,
    NULL::bytea AS outcome, c.claimed_at, c.renewed_at, c.doubt_at, c.completed_at, c.caller, c.version
