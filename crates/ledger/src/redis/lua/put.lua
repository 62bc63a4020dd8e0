-- Puts a claim as it is: if the key is absent, or over the very record that was read.
-- ARGV: the identity of what was read, or nothing; the value; when the key expires, if it does.
local seen, same = redis.call('GET', KEYS[1]), ARGV[1] == ''
if seen then
    same = not same and string.sub(seen, 1, 118) == ARGV[1]
end
if not same then
    return {now, 0, seen}
end
if ARGV[3] then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', math.max(ARGV[3] - now, 1))
else
    redis.call('SET', KEYS[1], ARGV[2])
end
return {now, 1}
