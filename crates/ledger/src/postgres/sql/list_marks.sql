WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
)
SELECT m.key, m.nonce, m.marked_at, m.expires_at, m.metadata
FROM ichido.marks AS m CROSS JOIN clock
WHERE m.expires_at > clock.now
    AND m.index > $1::bytea
    AND ($2::bytea IS NULL OR m.key >= $2::bytea AND m.key < $3::bytea)
ORDER BY m.index LIMIT $4::bigint
