return seen_at(KEYS[1])
