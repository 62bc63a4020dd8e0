-- An erased mark is written again as it is: it has no other metadata.
UPDATE ichido.marks SET key = $3::bytea, metadata = $4::json
WHERE index = $1::bytea AND nonce = $2::bytea
    AND expires_at > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
RETURNING true AS written
