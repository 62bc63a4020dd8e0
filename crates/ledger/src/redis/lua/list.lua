-- Reads a claim without its outcome.
return {now, 1, read_claim()}
