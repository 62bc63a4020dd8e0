WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
)
SELECT m.key, m.nonce, m.marked_at, m.expires_at, m.metadata
FROM ichido.marks AS m CROSS JOIN clock
WHERE m.index = $1::bytea AND m.expires_at > clock.now
