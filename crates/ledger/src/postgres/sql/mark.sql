-- Existing marks that have not expired are only read. The others are written in the order of their keys, so that two
-- batches never deadlock. A mark that another batch wrote after our snapshot is neither written nor read.
WITH clock AS MATERIALIZED (
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::text[])
    AS asked (index, key, nonce, retention_ms, metadata)
), put AS (
    INSERT INTO ichido.marks AS m (index, key, nonce, marked_at, expires_at, metadata)
    SELECT asked.index, asked.key, asked.nonce, clock.now, clock.now + asked.retention_ms, asked.metadata::json
    FROM asked CROSS JOIN clock LEFT JOIN ichido.marks AS found ON found.index = asked.index
    WHERE found.index IS NULL OR found.expires_at <= clock.now
    ORDER BY asked.index
    ON CONFLICT (index) DO UPDATE SET
        key = excluded.key, nonce = excluded.nonce, marked_at = excluded.marked_at, expires_at = excluded.expires_at,
        metadata = excluded.metadata
    WHERE m.expires_at <= excluded.marked_at
    RETURNING m.index
)
SELECT clock.now, asked.index, put.index IS NOT NULL AS written,
    found.nonce, found.marked_at, found.expires_at, found.metadata
FROM asked CROSS JOIN clock
LEFT JOIN put ON put.index = asked.index
LEFT JOIN ichido.marks AS found ON found.index = asked.index
