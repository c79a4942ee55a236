  local LIMIT = $LIMIT

  -- Returns the stored window, or a new window if that one has ended. If the clock has jumped back to a time before the stored
  -- window, the count moves to the present window.
  local function open(key)
    local fresh = $FRESH
    local state = { policy = false, touched = false, key = key, ends = fresh, count = 0, fresh = fresh }
    local text = get(key)
    if text then
      local at, n = match(text, '^(%d+) (%d+)$')
      at, n = time_of(at), tonumber(n)
      if at and at > $AFTER and n > 0 and n <= $MAX_COUNT then
        state.ends, state.count = min(at, fresh), n
        if at > fresh then touch(state) end
      end
    end
    return state
  end
