-- Prelude of listing and sweeping: reads a claim without its outcome. A value of another format, or a damaged one, is
-- returned whole.
local head = redis.call('GETRANGE', KEYS[1], 0, 167)
local tail, over_at = tonumber(string.sub(head, 35, 44)), tonumber(string.sub(head, 61, 76))
local fixed = tonumber(string.sub(head, 161, 168))
if not string.find(head, '^[23]') or not (tail and over_at and fixed)
    or redis.call('STRLEN', KEYS[1]) ~= 168 + fixed + tail then
    return {now, 0, redis.call('GET', KEYS[1])}
end
local function read_claim()
    local last = -1
    if string.find(head, '^[KT]', 34) then
        last = 167 + fixed
    end
    return redis.call('GETRANGE', KEYS[1], 0, last)
end
