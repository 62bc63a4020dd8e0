WITH over AS (
    SELECT index FROM ichido.marks
    WHERE expires_at <= (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    ORDER BY expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED
)
DELETE FROM ichido.marks AS m USING over WHERE m.index = over.index
RETURNING true AS written
