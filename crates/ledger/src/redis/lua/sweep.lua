-- Removes a claim whose time is over, and returns it without its outcome.
local seen = redis.call('HMGET', KEYS[1], 'format', 'over_at')
if seen[1] ~= '1' or not seen[2] or tonumber(seen[2]) > now then
    return {now, 0, {}}
end
redis.call('HDEL', KEYS[1], 'outcome')
local fields = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
return {now, 1, fields}
