-- Takes a holder's word on an open claim. Only the token is compared.
-- ARGV: token, word, and what the word needs. The end of doubt moves with its beginning.
local seen = redis.call('HMGET', KEYS[1], 'format', 'token', 'state', 'over_at', 'doubt_at', 'version', 'renewals',
    'retention_ms')
local state, over_at, doubt_at = seen[3], tonumber(seen[4] or 0), tonumber(seen[5] or 0)
if seen[1] ~= '1' or seen[2] ~= ARGV[1] or state == 'done' or over_at <= now then
    return {now, 0, redis.call('HGETALL', KEYS[1])}
end

local version, word = text(tonumber(seen[6]) + 1), ARGV[2]
if word == 'renew' then
    local lapses_at = now + tonumber(ARGV[3])
    redis.call('HSET', KEYS[1], 'version', version, 'state', 'running', 'renewed_at', text(now), 'lease_ms', ARGV[3],
        'renewals', text(math.min(tonumber(seen[7]) + 1, 4294967295)), 'doubt_at', text(lapses_at),
        'over_at', text(over_at + (lapses_at - doubt_at)))
    redis.call('HDEL', KEYS[1], 'doubt_kind', 'doubt_reason')
elseif word == 'complete' then
    over_at = text(now + tonumber(seen[8]))
    redis.call('HSET', KEYS[1], 'version', version, 'state', 'done', 'completed_at', text(now), 'over_at', over_at,
        'outcome_kept', ARGV[3], 'outcome', ARGV[4])
    redis.call('HDEL', KEYS[1], 'doubt_at', 'doubt_kind', 'doubt_reason')
    redis.call('PEXPIREAT', KEYS[1], over_at)
elseif word == 'doubt' then
    -- Doubt that had begun keeps its beginning.
    local since = doubt_at
    if state == 'running' then
        since = math.min(doubt_at, now)
    end
    redis.call('HSET', KEYS[1], 'version', version, 'state', 'in-doubt', 'doubt_kind', 'declared', 'doubt_reason',
        ARGV[3], 'doubt_at', text(since), 'over_at', text(over_at + (since - doubt_at)))
elseif word == 'release' then
    redis.call('DEL', KEYS[1])
else
    return redis.error_reply('ERR unknown word')
end
return {now, 1, {}}
