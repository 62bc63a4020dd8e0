-- Grants a claim: its times count from now. Further ARGV: the value up to its times; milliseconds to the end of the
-- lease, and to the end of doubt; the value from there on.
redis.call('SET', KEYS[1],
    ARGV[2] .. string.format('%016.0f%016.0f%016.0f%016.0f', now + ARGV[3], now + ARGV[4], now, now) .. ARGV[5])
return {now, 1}
