-- Reads a claim.
return {now, 1, seen()}
