-- Prelude of scripts that store a claim: continues only if the key is absent, or still holds the record that was read.
-- ARGV: the revision that was read, or ''. The script reads before it writes, because a full server refuses even a SET NX
-- that would write nothing, and retries must be answered.
local value, is_same = redis.call('GET', KEYS[1]), ARGV[1] == ''
if value then
    is_same = not is_same and string.sub(value, 1, 118) == ARGV[1]
end
if not is_same then
    return {now, 0, value}
end
