-- Reads a claim without its outcome, of which it says the size.
local all, fields = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
    if all[i] ~= 'outcome' then
        fields[#fields + 1] = all[i]
        fields[#fields + 1] = all[i + 1]
    end
end
return {now, redis.call('HSTRLEN', KEYS[1], 'outcome'), fields}
