-- Grants a claim: if the key is absent, or over the very record that was read. Its times count from now.
-- ARGV: the identity of what was read, or nothing; the value up to its times; milliseconds to the end of the lease,
-- and to the end of doubt; the value from there on. We look first, because a full server refuses even a SET NX that
-- would write nothing, and repeats are to be answered.
local seen, same = redis.call('GET', KEYS[1]), ARGV[1] == ''
if seen then
    same = not same and string.sub(seen, 1, 118) == ARGV[1]
end
if not same then
    return {now, 0, seen}
end
redis.call('SET', KEYS[1],
    ARGV[2] .. string.format('%016.0f%016.0f%016.0f%016.0f', now + ARGV[3], now + ARGV[4], now, now) .. ARGV[5])
return {now, 1}
