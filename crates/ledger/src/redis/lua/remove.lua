-- Removes a record if it is still the one that was read. ARGV: its revision.
if redis.call('GETRANGE', KEYS[1], 0, 117) ~= ARGV[1] then
    return {now, 0}
end
redis.call('DEL', KEYS[1])
return {now, 1}
