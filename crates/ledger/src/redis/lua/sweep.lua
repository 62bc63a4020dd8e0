-- Removes a claim if it has expired, and returns it.
if over_at > now then
    return {now, 0}
end
local swept = read_claim()
redis.call('DEL', KEYS[1])
return {now, 1, swept}
