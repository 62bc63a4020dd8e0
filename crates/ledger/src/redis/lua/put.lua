-- Stores a claim unchanged. Further ARGV: the value; when the key expires, if it does.
if ARGV[3] then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', math.max(ARGV[3] - now, 1))
else
    redis.call('SET', KEYS[1], ARGV[2])
end
return {now, 1}
