-- Marks an event, or reads the mark that is there and good, or of a format that we do not know.
-- ARGV: retention in milliseconds, then names and values.
if redis.call('EXISTS', KEYS[1]) == 1 then
    local seen = redis.call('HMGET', KEYS[1], 'format', 'expires_at')
    if seen[1] ~= '1' or tonumber(seen[2]) > now then
        return {now, 0, redis.call('HGETALL', KEYS[1])}
    end
end
local expires_at = text(now + tonumber(ARGV[1]))
redis.call('HSET', KEYS[1], 'marked_at', text(now), 'expires_at', expires_at, unpack(ARGV, 2))
redis.call('PEXPIREAT', KEYS[1], expires_at)
return {now, 1, {}}
