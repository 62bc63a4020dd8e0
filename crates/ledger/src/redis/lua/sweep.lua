-- Removes a claim whose time is over, and returns it.
if over_at > now then
    return {now, 0}
end
local swept = seen()
redis.call('DEL', KEYS[1])
return {now, 1, swept}
