-- Removes the very record that was read. ARGV: its identity.
if redis.call('GETRANGE', KEYS[1], 0, 117) ~= ARGV[1] then
    return {now, 0}
end
redis.call('DEL', KEYS[1])
return {now, 1}
