-- Checks the ledger's identity and increments its beat. A loss is written into the key, so that every process learns of
-- it. ARGV: an id for a new identity; then the id, time and beat that this process saw last, if any.
local value = redis.call('GET', KEYS[1])
local seen_id, seen_since, seen_beat = ARGV[2], tonumber(ARGV[3] or 0), tonumber(ARGV[4] or 0)
local state, id, since, beat = seen_id and 'missing' or 'auto', ARGV[1], now, 0
if value then
    state, id, since, beat = string.match(value, '^(%l+) (%x+) (%d+) (%d+)$')
    if not state then
        return redis.error_reply('ERR the identity key of the ledger has an unknown format')
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
-- The next reset must be later than what any process has seen, even on a server whose clock is behind.
since, beat = string.format('%.0f', math.max(since, seen_since)), string.format('%.0f', beat + 1)
redis.call('SET', KEYS[1], table.concat({state, id, since, beat}, ' '))
return {state, id, since, beat}
