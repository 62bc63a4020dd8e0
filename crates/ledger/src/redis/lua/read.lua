-- Reads a record.
return {now, 0, redis.call('GET', KEYS[1])}
