-- Grants a claim; its times are relative to now. Further ARGV: the value up to its times; milliseconds until the lease
-- ends, and until doubt expires; the rest of the value.
redis.call('SET', KEYS[1],
    ARGV[2] .. string.format('%016.0f%016.0f%016.0f%016.0f', now + ARGV[3], now + ARGV[4], now, now) .. ARGV[5])
return {now, 1}
