-- Marks an event. If there is a mark that has not expired or is unreadable, returns it instead.
-- ARGV: retention in milliseconds, and the part of the value that follows its times.
local seen = redis.call('GET', KEYS[1])
if seen then
    local expires_at = #seen > 33 and tonumber(string.sub(seen, 18, 33))
    if string.sub(seen, 1, 1) ~= '2' or not expires_at or expires_at > now then
        return {now, 0, seen}
    end
end
redis.call('SET', KEYS[1], '2' .. string.format('%016.0f%016.0f', now, now + ARGV[1]) .. ARGV[2], 'PX', ARGV[1])
return {now, 1}
