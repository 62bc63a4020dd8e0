DELETE FROM ichido.marks
WHERE index = $1::bytea AND nonce = $2::bytea
    AND expires_at > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
RETURNING true AS written
