DELETE FROM ichido.claims
WHERE index = $1::bytea AND token = $2::bytea AND version = $3::bigint
RETURNING true AS written
