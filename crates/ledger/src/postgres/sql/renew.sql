WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), applied AS (
    -- The end of doubt moves with its beginning.
    UPDATE ichido.claims AS c SET
        version = c.version + 1, state = 'running', renewed_at = clock.now, lease_ms = $3::bigint,
        renewals = least(c.renewals + 1, 4294967295), doubt_at = clock.now + $3::bigint,
        over_at = c.over_at + (clock.now + $3::bigint - c.doubt_at), doubt_kind = NULL, doubt_reason = NULL
    FROM clock
    WHERE c.index = $1::bytea AND c.token = $2::bytea AND c.completed_at IS NULL AND c.over_at > clock.now
    RETURNING c.index
)
SELECT clock.now, EXISTS (SELECT FROM applied) AS written, found.index, found.tenant, found.route, found.key, found.fingerprint, found.nonce,
    found.token, found.attempt, found.holder, found.lease_ms, found.retention_ms, found.metadata, found.renewals,
    found.state, found.doubt_kind, found.doubt_reason, found.outcome_kept, found.outcome, found.claimed_at,
    found.renewed_at, found.doubt_at, found.completed_at, found.caller, found.version
FROM clock LEFT JOIN ichido.claims AS found ON found.index = $1::bytea
