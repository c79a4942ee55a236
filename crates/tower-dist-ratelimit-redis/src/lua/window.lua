  local LIMIT = $LIMIT

  -- Returns the stored window if it is valid and has not ended, or else a new window. If a valid stored window ends
  -- later than $LATEST, because the clock has jumped back, it moves to end at $LATEST, so that the key recovers.
  local function open(key)
    local fresh = $FRESH
    local state = { policy = false, touched = false, key = key, ends = fresh, count = 0, fresh = fresh }
    local value = get(key, 16)
    if value then
      local at, n = decode('<dd', value)
      if time_of(at) and at > $AFTER and n >= 1 and n <= $MAX_COUNT then
        state.ends, state.count = min(at, $LATEST), n
        if at > $LATEST then touch(state) end
      end
    end
    return state
  end
