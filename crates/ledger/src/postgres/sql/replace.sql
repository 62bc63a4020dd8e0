-- Replaces a record if it is still the one that was read: token $26 at version $27.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), origin AS MATERIALIZED (
    SELECT CASE WHEN $24::boolean THEN now ELSE 0 END AS at FROM clock
)
UPDATE ichido.claims AS c SET
    tenant = $2::bytea, route = $3::bytea, key = $4::bytea, fingerprint = $5::bytea, nonce = $6::bytea,
    token = $7::bytea, attempt = $8::bigint, holder = $9::text, lease_ms = $10::bigint, retention_ms = $11::bigint,
    metadata = $12::json, renewals = $13::bigint, state = $14::text, doubt_kind = $15::text,
    doubt_reason = $16::bytea, outcome_kept = $17::boolean, outcome = $18::bytea,
    claimed_at = at + $19::bigint, renewed_at = at + $20::bigint, doubt_at = at + $21::bigint,
    completed_at = at + $22::bigint, over_at = at + $23::bigint, caller = $25::bytea,
    version = c.version + 1
FROM origin
WHERE c.index = $1::bytea AND c.token = $26::bytea AND c.version = $27::bigint
RETURNING true AS written
