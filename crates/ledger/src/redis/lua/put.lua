-- Puts a claim: if the key is absent (no token is given), or over the very record that was read.
-- ARGV: token and version that were read; 1 if times count from now; 1 if the key expires; five times, empty for
-- none; then names and values. The first write is the one that a full server refuses, so that nothing is half done.
local version = 0
if ARGV[1] == '' then
    if redis.call('EXISTS', KEYS[1]) == 1 then
        return {now, 0, redis.call('HGETALL', KEYS[1])}
    end
else
    local seen = redis.call('HMGET', KEYS[1], 'token', 'version')
    if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] then
        return {now, 0, {}}
    end
    version = tonumber(seen[2])
end

local fields, given = {'version', text(version + 1)}, {}
local function set(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
    given[name] = true
end

local over_at
for i, name in ipairs({'claimed_at', 'renewed_at', 'doubt_at', 'completed_at', 'over_at'}) do
    local at = ARGV[4 + i]
    if at ~= '' then
        over_at = text(tonumber(at) + (ARGV[3] == '1' and now or 0))
        set(name, over_at)
    end
end
for i = 10, #ARGV, 2 do
    set(ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], unpack(fields))

for _, name in ipairs({'doubt_at', 'doubt_kind', 'doubt_reason', 'completed_at', 'outcome_kept', 'outcome'}) do
    if not given[name] then
        redis.call('HDEL', KEYS[1], name)
    end
end
if ARGV[4] == '1' then
    redis.call('PEXPIREAT', KEYS[1], over_at)
else
    redis.call('PERSIST', KEYS[1])
end
return {now, 1, {}}
