-- Removes the very record that was read. ARGV: its token and version.
local seen = redis.call('HMGET', KEYS[1], 'token', 'version')
if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] then
    return {now, 0, {}}
end
redis.call('DEL', KEYS[1])
return {now, 1, {}}
