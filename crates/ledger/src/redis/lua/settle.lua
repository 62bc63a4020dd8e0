-- Settles an open claim. Only the token is compared; if the claim is another one or not open, its value is returned.
-- ARGV: token, action, and the arguments of the action. The end of doubt moves with its beginning.
local sub = string.sub
local seen = redis.call('GET', KEYS[1])
if not seen or not string.find(seen, '^[23]') or sub(seen, 2, 33) ~= ARGV[1] then
    return {now, 0, seen}
end
local prefix = sub(seen, 1, 33)
local state, tail, fixed = sub(seen, 34, 34), tonumber(sub(seen, 35, 44)), tonumber(sub(seen, 161, 168))
local over_at, retention_ms = tonumber(sub(seen, 61, 76)), tonumber(sub(seen, 145, 160))
if state == 'K' or state == 'T' or not (tail and fixed and over_at and retention_ms)
    or over_at <= now or #seen ~= 168 + fixed + tail then
    return {now, 0, seen}
end

local action, last = ARGV[2], 168 + fixed
if action == 'complete' then
    redis.call('SET', KEYS[1],
        prefix .. ARGV[3] .. string.format('%016.0f%016.0f', now, now + retention_ms) .. sub(seen, 77, last) .. ARGV[4],
        'PX', math.max(retention_ms, 1))
    return {now, 1}
elseif action == 'release' then
    redis.call('DEL', KEYS[1])
    return {now, 1}
end

local doubt_at, version = tonumber(sub(seen, 45, 60)), tonumber(sub(seen, 109, 118))
local renewals = tonumber(sub(seen, 119, 128))
if not (doubt_at and version and renewals) then
    return {now, 0, seen}
end
version = string.format('%010.0f', (version + 1) % 1e10)
if action == 'renew' then
    local lapses_at = now + ARGV[3]
    redis.call('SET', KEYS[1],
        prefix .. 'R0000000000' .. string.format('%016.0f%016.0f', lapses_at, over_at + (lapses_at - doubt_at)) ..
        sub(seen, 77, 92) .. string.format('%016.0f', now) .. version ..
        string.format('%010.0f%016.0f', math.min(renewals + 1, 4294967295), ARGV[3]) .. sub(seen, 145, last))
elseif action == 'doubt' then
    -- If doubt had already begun, it keeps its beginning.
    local since = doubt_at
    if state == 'R' then
        since = math.min(doubt_at, now)
    end
    redis.call('SET', KEYS[1],
        prefix .. ARGV[3] .. string.format('%016.0f%016.0f', since, over_at + (since - doubt_at)) ..
        sub(seen, 77, 108) .. version .. sub(seen, 119, last) .. ARGV[4])
else
    return redis.error_reply('ERR unknown action')
end
return {now, 1}
