-- Replaces a mark if it is still the one that was read. ARGV: its value; the new value; when it expires.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return {now, 0}
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', math.max(ARGV[3] - now, 1))
return {now, 1}
