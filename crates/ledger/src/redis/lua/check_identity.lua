-- Looks at the ledger's identity, and counts the look in its beat. What was lost is written down, for every process.
-- ARGV: an id for a new identity; then the id, the time and the beat that this process saw last, if it saw any.
local value = redis.call('GET', KEYS[1])
local seen_id, seen_since, seen_beat = ARGV[2], tonumber(ARGV[3] or 0), tonumber(ARGV[4] or 0)
local state, id, since, beat = seen_id and 'missing' or 'auto', ARGV[1], now, 0
if value then
    state, id, since, beat = string.match(value, '^(%l+) (%x+) (%d+) (%d+)$')
    if not state then
        return redis.error_reply('ERR the identity of the ledger has another format')
    end
    since, beat = tonumber(since), tonumber(beat)
    local is_other = seen_id and id ~= seen_id
    if is_other and state == 'auto' then
        state = 'replaced'
    elseif (is_other and state == 'init' and since <= seen_since)
        or (id == seen_id and beat < seen_beat and (state == 'auto' or state == 'init')) then
        state = 'older'
    end
end
-- The next init is later than what any process saw, also on a server whose clock is behind.
since, beat = string.format('%.0f', math.max(since, seen_since)), string.format('%.0f', beat + 1)
redis.call('SET', KEYS[1], table.concat({state, id, since, beat}, ' '))
return {state, id, since, beat}
