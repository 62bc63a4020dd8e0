-- Removes a mark if it is still the one that was read. ARGV: its value.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return {now, 0}
end
redis.call('DEL', KEYS[1])
return {now, 1}
