WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), applied AS (
    -- If doubt had already begun, it keeps its beginning. The end of doubt moves with its beginning.
    UPDATE ichido.claims AS c SET
        version = c.version + 1, state = 'in-doubt', doubt_kind = 'declared', doubt_reason = $3::bytea,
        doubt_at = CASE c.state WHEN 'running' THEN least(c.doubt_at, clock.now) ELSE c.doubt_at END,
        over_at = CASE c.state WHEN 'running' THEN c.over_at + least(0, clock.now - c.doubt_at) ELSE c.over_at END
    FROM clock
    WHERE c.index = $1::bytea AND c.token = $2::bytea AND c.completed_at IS NULL AND c.over_at > clock.now
    RETURNING c.index
)
SELECT clock.now, EXISTS (SELECT FROM applied) AS written, found.index, found.tenant, found.route, found.key, found.fingerprint, found.nonce,
    found.token, found.attempt, found.holder, found.lease_ms, found.retention_ms, found.metadata, found.renewals,
    found.state, found.doubt_kind, found.doubt_reason, found.outcome_kept, found.outcome, found.claimed_at,
    found.renewed_at, found.doubt_at, found.completed_at, found.caller, found.version
FROM clock LEFT JOIN ichido.claims AS found ON found.index = $1::bytea
