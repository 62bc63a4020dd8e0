-- The start of what puts a claim: if the key is absent, or over the very record that was read.
-- ARGV: the identity of what was read, or nothing. We look before we write, because a full server refuses even a
-- SET NX that would write nothing, and repeats are to be answered.
local seen, same = redis.call('GET', KEYS[1]), ARGV[1] == ''
if seen then
    same = not same and string.sub(seen, 1, 118) == ARGV[1]
end
if not same then
    return {now, 0, seen}
end
